"""`kinetic.run`: turns a function into one that runs remotely; inside a job it has no effect."""

from __future__ import annotations

import copyreg
import functools
from collections.abc import Callable, Iterable
from datetime import timedelta
from typing import (
    TYPE_CHECKING,
    Any,
    Concatenate,
    Final,
    Generic,
    Literal,
    ParamSpec,
    TypeVar,
    cast,
    overload,
)

from kinetic.errors import InvalidRequestError, NotInsideJobError
from kinetic_payload.data.references import inside_job

if TYPE_CHECKING:
    import inspect
    from typing import Self

    from kinetic.batches.handle import BatchHandle
    from kinetic.data import Data
    from kinetic.jobs.handle import JobHandle
    from kinetic.submit.options import RunOptions
    from kinetic.submit.request import JobRequest

P = ParamSpec("P")
Q = ParamSpec("Q")
R = TypeVar("R")
S = TypeVar("S")
F = TypeVar("F", bound=Callable[..., Any])

_OTHER_ARGUMENTS: Final = {
    "image": "container_image=",
    "gpu": 'accelerator="gpu-…"',
    "tpu": 'accelerator="tpu-…"',
    "env": "capture_env_vars=[…], names of variables",
    "secrets": "capture_env_vars=[…], names of variables",
    "mem": "memory=",
}
"""What other tools call the arguments of `run`."""


def _answers_unknown_arguments(function: F) -> F:
    """Return *function*, which names the argument that is meant by one that it does not have."""

    @functools.wraps(function)
    def checked(*args: Any, **given: Any) -> Any:
        code = function.__code__
        known = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
        for name in given:
            if name not in known:
                import difflib

                near = difflib.get_close_matches(name, known, n=1)
                ours = _OTHER_ARGUMENTS.get(name) or (f"{near[0]}=" if near else "")
                meant = f" Did you mean {ours}?" if ours else ""
                raise TypeError(
                    f"kinetic.run() got an unexpected keyword argument {name!r}.{meant}"
                )
        return function(*args, **given)

    return cast("F", checked)


@_answers_unknown_arguments
def run(
    accelerator: str = "tpu-v5e-1",
    container_image: str | None = None,
    base_image_repo: str | None = None,
    zone: str | None = None,
    project: str | None = None,
    capture_env_vars: list[str] | None = None,
    cluster: str | None = None,
    backend: str | None = None,
    namespace: str | None = None,
    volumes: dict[str, Data] | None = None,
    spot: bool = False,
    output_dir: str | None = None,
    debug: bool = False,
    *,
    timeout: float | timedelta | None = None,
    retries: int = 0,
    preemptions: int | None = None,
    cpu: float | str | None = None,
    memory: int | str | None = None,
    shared_memory: int | str | None = None,
    labels: dict[str, str] | None = None,
    pod_overrides: dict[str, Any] | None = None,
) -> Callable[[Callable[P, R]], RemoteCallable[P, R]]:
    """Run a function on an accelerator: `@kinetic.run(accelerator="tpu-v5litepod-4")`.

    Calling the decorated function runs it there and waits for its value; `run_async(...)` returns a
    `JobHandle` at once. Inside a job a decorated function simply runs.

    Args:
        accelerator: What to run on, such as `tpu-v5litepod-4`, `gpu-l4`, `gpu-a100x8`, `cpu`;
            `kinetic accelerators` lists all. A `:spot` at the end asks for spot machines.
        container_image: None or `"bundled"`: an image with the project's requirements; None on the
            local backend is the interpreter that submits. `"prebuilt"`: a base image, in which the
            requirements are installed at start. Anything else is an image's address.
        base_image_repo: The repository of prebuilt base images. Falls back to KINETIC_BASE_IMAGE_REPO.
        zone: GCP zone. Falls back to KINETIC_ZONE, then the active profile.
        project: GCP project. Falls back to KINETIC_PROJECT, the active profile, then
            GOOGLE_CLOUD_PROJECT. The local backend needs none.
        capture_env_vars: Environment variables that the job gets: names, or prefixes followed by `*`.
        cluster: GKE cluster. Falls back to KINETIC_CLUSTER, then the active profile.
        backend: `"gke"`, `"pathways"`, or `"local"` for this machine (`"local-gke"` and
            `"local-pathways"` choose which of the two to emulate). Falls back to KINETIC_BACKEND, the
            active profile, then to `"gke"` or `"pathways"`, whichever suits the accelerator.
        namespace: Kubernetes namespace. Falls back to KINETIC_NAMESPACE, then the active profile.
        volumes: Data by absolute mount path: `{"/data": kinetic.Data("./dataset/")}`.
        spot: Use spot machines. It has no effect on the local backend.
        output_dir: The folder that the job finds in KINETIC_OUTPUT_DIR; on a cluster, a `gs://` URI. Falls
            back to that variable of this process, then to a folder for each job.
        debug: Wait for a debugger before calling the function.
        timeout: Seconds, or a timedelta, that the function may take in one attempt.
        retries: How many more attempts to make after failures of the function.
        preemptions: How many more attempts to make after disruptions, which are not failures; None
            means no limit. It has an effect on a cluster only.
        cpu: Cores of each host (`4`, `"500m"`). It has an effect on a cluster only.
        memory: Memory of each host in bytes or as text (`"16Gi"`); on the local backend a limit, if
            the system offers one.
        shared_memory: Size of /dev/shm. It has an effect on a cluster only.
        labels: Labels of the job's resources.
        pod_overrides: Parts of a pod template, merged last into that of the job's pods. On a cluster only.
            Falls back to the active profile.

    Raises:
        InvalidRequestError: An argument is wrong; the hint says what to write instead.
        TypeError: There is no such argument; the message has a similar one, or that of Kinetic.
    """
    given = dict(locals())
    first: object = accelerator
    if callable(first) or isinstance(first, classmethod | staticmethod):
        raise InvalidRequestError(
            "@kinetic.run is used without parentheses.",
            hint='Write @kinetic.run() or @kinetic.run(accelerator="tpu-v5litepod-4").',
        )
    if inside_job():
        return lambda function: RemoteCallable(function, None)
    from kinetic.submit.options import check_options
    from kinetic.tracebacks import hide_own_frames

    hide_own_frames()
    options = check_options(**given)

    def decorate(function: Callable[P, R]) -> RemoteCallable[P, R]:
        from kinetic.submit.functions import check_callable

        if isinstance(function, RemoteCallable):
            raise InvalidRequestError(
                f"{function!r} is decorated with @kinetic.run already.",
                hint="Remove one of the two decorators.",
            )
        return RemoteCallable(cast("Callable[P, R]", check_callable(function)), options)

    return decorate


class RemoteCallable(Generic[P, R]):
    """A function that runs remotely: call it and wait for its value, or call `run_async`.

    As an attribute of a class it is a method: the instance is passed as the first argument.
    """

    __wrapped__: Callable[..., R]

    def __init__(
        self,
        function: Callable[P, R],
        options: RunOptions | None,
        *,
        instance: object = None,
        bound: bool = False,
    ) -> None:
        functools.update_wrapper(self, function)
        self._function = function
        self._options = options
        self._first: tuple[Any, ...] = (instance,) if bound else ()

    def __call__(self, /, *args: P.args, **kwargs: P.kwargs) -> R:
        """Run the function and wait for its value, showing progress and the job's log.

        Raises:
            Exception: Whatever the function raised, with the remote traceback in its notes.
            KineticError: The job was refused, could not start, or ended without a value.
            KeyboardInterrupt: Ctrl-C; the output before it says how to get back to the job.
        """
        if inside_job():
            return self._function(*self._first, *args, **kwargs)
        from kinetic.submit.blocking_call import call

        request = self._request((*self._first, *args), kwargs)
        return cast("R", call(request, self._function, (*self._first, *args), kwargs))

    def run_async(self, /, *args: P.args, **kwargs: P.kwargs) -> JobHandle[R]:
        """Start the function remotely and return a handle at once.

        The job outlives this process. `handle.result()` waits for the value; `await handle` does so
        without blocking the event loop.

        Raises:
            KineticError: The job was refused or could not start; nothing of it is left.
        """
        if inside_job():
            raise NotInsideJobError(
                f"{self._name}.run_async() was called inside a job, which submits no jobs of its own.",
                hint=f"Call {self._name}(...) itself: inside a job it simply runs.",
            )
        from kinetic.submit.functions import check_class_given
        from kinetic.submit.submit import submit

        check_class_given(self, (*self._first, *args))
        request = self._request((*self._first, *args), kwargs)
        return submit(request, self._function, (*self._first, *args), kwargs)

    def run_async_map(
        self,
        inputs: Iterable[Any],
        *,
        input_mode: Literal["auto", "single", "args", "kwargs"] = "auto",
        max_concurrent: int = 64,
        retries: int = 0,
        fail_fast: bool = False,
        cancel_running_on_fail: bool = False,
        name: str | None = None,
        tags: dict[str, str] | None = None,
        project: str | None = None,
        cluster: str | None = None,
        common: dict[str, Any] | None = None,
        max_failures: int | None = None,
        inputs_per_pod: int | None = None,
    ) -> BatchHandle[R]:
        """Run the function once for each of *inputs*, and return a handle of all at once.

        The batch outlives this process. In a job, KINETIC_BATCH_INDEX is the index of its input.

        Args:
            inputs: Any iterable; an iterator is consumed once, and an input of it that cannot be submitted becomes one
                of `submission_failures`. A bad input of a list is an error.
            input_mode: `auto`: a dict whose keys are identifiers gives keyword arguments, a list or tuple
                positional ones, and anything else one argument. `single`, `args`, `kwargs`: always that.
            max_concurrent: How many inputs run at once, at most.
            retries: How many more attempts to make at an input whose function failed; 0: those of the decorator.
            fail_fast: Start no further input once one has failed.
            cancel_running_on_fail: Stop those that run as well. It implies *fail_fast*.
            name: Shown in lists.
            tags: Shown in lists.
            project: GCP project; takes precedence over that of the decorator.
            cluster: GKE cluster; takes precedence over that of the decorator.
            common: Keyword arguments that every input gets; they are stored once.
            max_failures: Start no further input once more than that many have failed.
            inputs_per_pod: How many inputs a worker runs, one after another; by default this follows from their number.

        Raises:
            InvalidRequestError: An argument or an input is wrong; the message has its index.
            KineticError: The batch was refused or could not start; nothing of it is left.
        """
        if inside_job():
            raise NotInsideJobError(
                f"{self._name}.run_async_map() was called inside a job, which submits no jobs of its own.",
                hint=f"Call {self._name}(...) itself for each input: inside a job it simply runs.",
            )
        from kinetic.batches.batch import BatchOptions, submit_batch

        options = BatchOptions(
            input_mode=input_mode,
            max_concurrent=max_concurrent,
            retries=retries,
            fail_fast=fail_fast,
            cancel_running_on_fail=cancel_running_on_fail,
            max_failures=max_failures,
            name=name,
            tags=tags,
            common=common,
            inputs_per_pod=inputs_per_pod,
        )
        request = self._request_with(project=project, cluster=cluster)
        return submit_batch(request, self._function, self._first, inputs, options)

    if not TYPE_CHECKING:  # A type checker would take every attribute for one.

        def __getattr__(self, name: str) -> Any:
            """Refuse attributes that there are not; names of other tools with that of Kinetic."""
            ours = _OTHER_NAMES.get(name)
            more = f". In Kinetic: {ours}" if ours else ""
            raise AttributeError(
                f"{type(self).__name__!r} object has no attribute {name!r}{more}",
                name=name,
                obj=self,
            )

    def _request(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> JobRequest:
        from kinetic.submit.functions import check_arguments

        check_arguments(self._function, args, kwargs)
        return self._request_with()

    def _request_with(self, **overrides: str | None) -> JobRequest:
        from kinetic.settings.settings import Settings, environment, working_folder
        from kinetic.submit.request import request_of

        _register_with_cloudpickle()
        options = self._options
        if options is None:
            # Decorated inside a job, or unpickled, and now called outside of a job.
            raise NotInsideJobError(
                f"{self._name} was decorated inside a job, or unpickled: it has no arguments of @kinetic.run.",
                hint="Decorate the function here.",
            )
        given = {name: value for name, value in overrides.items() if value is not None}
        settings = Settings.from_environment(**{**options.overrides, **given})
        return request_of(
            options, self._function, settings, environ=environment(), cwd=working_folder()
        )

    @property
    def _name(self) -> str:
        return str(getattr(self, "__qualname__", None) or type(self._function).__qualname__)

    @overload
    def __get__(self, instance: None, owner: type | None = None) -> Self: ...
    @overload
    def __get__(
        self: RemoteCallable[Concatenate[S, Q], R], instance: S, owner: type | None = None
    ) -> RemoteCallable[Q, R]: ...
    def __get__(self, instance: Any, owner: type | None = None) -> RemoteCallable[Any, Any]:
        """Bind like a function does."""
        if instance is None or self._first:
            return self
        return RemoteCallable(self._function, self._options, instance=instance, bound=True)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, RemoteCallable):
            return NotImplemented
        if not self._first or not other._first:
            return self is other
        return self._function is other._function and self._first[0] is other._first[0]

    def __hash__(self) -> int:
        if not self._first:
            return object.__hash__(self)
        return hash((id(self._function), id(self._first[0])))

    @property
    def __signature__(self) -> inspect.Signature:
        """The signature of the user's function, for editors and notebooks."""
        import inspect

        signature = inspect.signature(self._function)
        if not self._first:
            return signature
        return signature.replace(parameters=list(signature.parameters.values())[1:])

    def __repr__(self) -> str:
        options = ""
        if self._options is not None:
            given = self._options.given.items()
            options = ", ".join(f"{name}={value!r}" for name, value in given)
        bound = f" of {self._first[0]!r}" if self._first else ""
        return f"<{self._name}{bound}, decorated with @kinetic.run({options})>"

    def __reduce_ex__(self, protocol: Any) -> Any:
        """Pickle by reference, like a function; if bound, like a method."""
        if self._first:
            return getattr, (self._first[0], getattr(self, "__name__", self._name))
        return self._name if "__qualname__" in vars(self) else _by_value(self)

    def __setstate__(self, state: dict[str, Any]) -> None:
        _register_with_cloudpickle()  # A job may return it, or a class that has it.
        self.__init__(state["function"], None)  # type: ignore[misc]

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        return self


_OTHER_NAMES: Final = {
    "map": "run_async_map(inputs)",
    "starmap": 'run_async_map(inputs, input_mode="args")',
    "remote": "run_async(...), or call it to wait for its value",
    "spawn": "run_async(...)",
    "submit": "run_async(...)",
    "delay": "run_async(...)",
}
"""What other tools call the methods of decorated functions."""


def _register_with_cloudpickle() -> None:
    """Let cloudpickle, and no other pickler, pickle decorated functions by value.

    The picklers of calls and values use this only for functions that the other side cannot import.
    """
    import cloudpickle

    cloudpickle.CloudPickler.dispatch_table[RemoteCallable] = _by_value


def _by_value(remote: RemoteCallable[Any, Any]) -> Any:
    if remote._first:
        return remote.__reduce_ex__(4)
    # Created empty and filled later, so that a function that calls itself can be pickled. The options
    # are left out: their data and settings have no meaning in the job.
    return copyreg.__newobj__, (RemoteCallable,), {"function": remote._function}  # type: ignore[attr-defined]
