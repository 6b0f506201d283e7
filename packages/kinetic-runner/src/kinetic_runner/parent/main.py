"""The entry of the runner's parent process: start the child, run the attempt, exit."""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Sequence

# A child that is started, not forked, starts before this process imports anything else, even `typing`: both then
# import at the same time.
from kinetic_payload.processes import adopt_orphans
from kinetic_runner import WARM
from kinetic_runner.parent.child_process import Child, fork, spawn
from kinetic_runner.parent.signals import SelfPipe

KEY_VARIABLE = "KINETIC_SIGNING_KEY"
"""`layout.Env.SIGNING_KEY`, whose module takes too long to import here; a test compares them."""
_BUCKET = "gs://"
_GROUP = "grp-"
"""The beginning of the id of a batch, which no other argument has; see `layout.is_group_id`."""


def run_parent(argv: Sequence[str], bundle: str) -> list[str]:
    """Run a bundle; its child runs the same file. Ends the process; only a forked child returns, its arguments."""
    # Options for the interpreter (-u, -X, -W) go to the child as well.
    options = sys.orig_argv[1 : len(sys.orig_argv) - len(sys.argv)]
    return run_with([sys.executable, *options, bundle, "--child"], argv, may_fork=True)


def run_with(
    command: Sequence[str],
    argv: Sequence[str],
    *,
    linger: float | None = None,
    may_fork: bool = False,
) -> list[str]:
    """Run *command* as the child of a runner with the arguments *argv*. Ends the process.

    *linger* is how many seconds threads and exit handlers may take, once the outcome is known. With *may_fork*, the
    child is a fork of this process where that is safe; in it, this returns its arguments.
    """
    gc.disable()  # The modules imported now stay in memory, so collections would only take time.
    environment = dict(os.environ)  # noqa: TID251  # the one place of the parent that reads it
    # User code must not be able to forge its job's records: the child does not get the key.
    child_environment = {name: text for name, text in environment.items() if name != KEY_VARIABLE}
    in_bucket = any(word.startswith(_BUCKET) for word in argv)
    if in_bucket:
        command = [*command, WARM]
    is_worker = any(word.startswith(_GROUP) for word in argv)
    may_fork = may_fork and not (in_bucket or is_worker or KEY_VARIABLE in environment)
    code = 2
    try:
        inherited = _make_descriptors_uninheritable()
        forked = _fork_if_safe(command, inherited) if may_fork else None
        if isinstance(forked, list):
            return forked
        signals = SelfPipe()
        if is_worker:
            from kinetic_runner.parent.children import Children

            children = Children(command, child_environment, signals)
        else:
            child = forked or spawn(command, child_environment)
    except OSError as error:  # Too many files are open, for instance.
        sys.stderr.write(f"[kinetic] The process for the function could not be started: {error}.\n")
        sys.exit(code)
    try:
        # Import the rest while the child starts.
        from kinetic_runner.command_line import parse_arguments

        arguments = parse_arguments(argv)
        if is_worker:
            from kinetic_runner.parent.worker import run_worker

            gc.freeze()
            gc.enable()
            code = run_worker(arguments, environment, children, signals)
        else:
            from kinetic_runner.parent.attempt import run_attempt

            gc.freeze()
            gc.enable()
            code = run_attempt(arguments, environment, child, signals, linger=linger)
    except BaseException as error:  # noqa: BLE001  # os._exit would swallow it
        _print_failure(error)
    finally:
        if is_worker:
            children.close()
        else:
            child.kill()
        sys.stdout.flush()
        sys.stderr.flush()
        # Not sys.exit: a thread may still wait for a store that does not answer.
        os._exit(code)


def _print_failure(error: BaseException) -> None:
    from kinetic_payload.errors import KineticError
    from kinetic_payload.layout import STDERR_MARK

    text = f"[kinetic] {error}"
    if not isinstance(error, KineticError):
        import traceback

        text = "".join(traceback.format_exception(error))
    sys.stderr.write("".join(f"{STDERR_MARK}{line}\n" for line in text.splitlines()))


def _fork_if_safe(command: Sequence[str], inherited: Sequence[int]) -> Child | list[str] | None:
    """Return what `fork` returns; None if a fork of this process is not as good a child as a new one."""
    # What a `sitecustomize` prints, opens and seeds belongs to the process of the function.
    if sys.platform != "linux" or {"sitecustomize", "usercustomize"} & sys.modules.keys():
        return None
    # A fork of a process with threads can deadlock.
    if len(os.listdir("/proc/self/task")) != 1 or not adopt_orphans():  # noqa: PTH208 - light
        return None
    # What parent and child need is imported once for both.
    import kinetic_payload.limits
    import kinetic_payload.records.attempt_result
    import kinetic_payload.records.pending_uploads
    import kinetic_payload.stores.folder.store  # noqa: F401
    import kinetic_runner.hosts
    import kinetic_runner.store_retries
    import kinetic_runner.task  # noqa: F401

    return fork(command, inherited)


def _make_descriptors_uninheritable() -> list[int]:
    """Let the child inherit only its own descriptors: no lifeline, no leaked socket. Return what it would have inherited."""
    inherited = []
    with os.scandir("/dev/fd") as entries:
        numbers = [int(entry.name) for entry in entries if entry.name.isdigit()]
    for fd in numbers:
        try:
            if fd > 2 and os.get_inheritable(fd):
                os.set_inheritable(fd, False)
                inherited.append(fd)
        except OSError:
            continue  # This was the descriptor of the listing.
    return inherited
