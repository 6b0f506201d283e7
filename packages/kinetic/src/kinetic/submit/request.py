"""`JobRequest`: all decisions about a job, made before anything is packaged, uploaded or billed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kinetic.backends.registry import LOCAL, Entry, Semantics, asked_for, entry_of, suited_to
from kinetic.errors import ConfigurationError, InvalidRequestError
from kinetic.submit.capture import SecretValues, capture
from kinetic.submit.functions import name_of
from kinetic.submit.options import RunOptions, check_pod_overrides, check_size
from kinetic.target import Target, is_in_pod
from kinetic_payload.frozen import frozen
from kinetic_payload.stores.store import parse_location

if TYPE_CHECKING:
    from kinetic.settings.settings import Settings
    from kinetic_k8s.accelerators import Accelerator


@frozen(kw_only=True)
class JobRequest(RunOptions):
    """A job as it was requested, with nothing left to resolve."""

    function_name: str
    """Qualified, such as `Trainer.fit`."""
    backend: str
    """A name in `kinetic.backends.registry`."""
    semantics: Semantics
    """Whether each host runs the function, or one process controls all devices."""
    target: Target
    captured_env: SecretValues
    """Environment variables that the job gets."""
    output_dir: str | None
    """None means a folder of the job's own."""
    pod_overrides: Mapping[str, Any]
    """Merged last into the template of the job's pods."""
    settings: Settings
    notes: tuple[str, ...] = ()
    """Warnings for the user."""
    batch: bool = False
    """Whether the function runs for many inputs."""

    @property
    def on_this_machine(self) -> bool:
        """Whether the job runs on this machine, with its files."""
        return entry_of(self.backend).on_this_machine


def request_of(
    options: RunOptions,
    function: Callable[..., Any],
    settings: Settings,
    *,
    environ: Mapping[str, str],
    cwd: Path,
) -> JobRequest:
    """Decide what the job is, from the decorator's *options* and the resolved *settings*.

    `capture_env_vars` selects from *environ*; a relative `output_dir` is resolved against *cwd*.

    Raises:
        InvalidRequestError: An option or a setting is invalid.
    """
    entry = backend_of(settings, options.accelerator)
    semantics = entry.semantics_for(options.accelerator)
    if semantics == "gke":
        # Under Pathways the function runs on another machine than that of the accelerator.
        check_size(options)
    target = Target.in_settings(settings)
    if not (entry.on_this_machine or target.named or is_in_pod(environ)):
        raise ConfigurationError(
            f"The backend {entry.name!r} needs a project, and none is set.",
            hint=f"To run on this machine: backend={LOCAL!r} or KINETIC_BACKEND={LOCAL}. "
            "Else give project=..., set KINETIC_PROJECT or GOOGLE_CLOUD_PROJECT, or choose a profile.",
        )
    _check_names(settings, entry)
    captured = capture(options.capture, environ)
    notes = [*captured.notes()]
    output_dir = settings.output_dir.value
    if output_dir is not None:
        output_dir = _output_dir(output_dir, cwd if entry.on_this_machine else None, notes)
    overrides, of_profile = options.pod_overrides, settings.pod_overrides.value
    # A profile also applies to jobs on this machine, which have no pods.
    if overrides is None and of_profile and not entry.on_this_machine:
        overrides = check_pod_overrides(of_profile)
    return JobRequest(
        **{**vars(options), "pod_overrides": overrides or {}},
        function_name=name_of(function),
        backend=entry.name,
        semantics=semantics,
        target=target,
        captured_env=captured.values,
        output_dir=output_dir,
        settings=settings,
        notes=tuple(notes),
    )


def backend_of(settings: Settings, accelerator: Accelerator) -> Entry:
    """Return the backend that *settings* name, or else the one that suits *accelerator*.

    A local backend is never chosen by default: it must be named.

    Raises:
        InvalidRequestError: There is no such backend; the hint has similar names.
    """
    named = settings.backend
    if named.value is None:
        return suited_to(accelerator)
    return asked_for(named.value, named.source)


def _check_names(settings: Settings, entry: Entry) -> None:
    """Refuse names that Kubernetes cannot accept."""
    from kinetic_k8s.manifests.names import is_namespace_name, is_object_name

    namespace, account = settings.namespace, settings.service_account
    if not is_namespace_name(namespace.value):
        raise InvalidRequestError(
            f"{namespace.value!r} cannot be the name of a namespace (from: {namespace.source}).",
            hint="Use at most 63 lower-case letters, digits and '-'; begin and end with a letter or digit.",
        )
    if entry.on_this_machine or account.value is None:
        return
    if not is_object_name(account.value):
        raise InvalidRequestError(
            f"{account.value!r} cannot be the name of a service account (from: {account.source}).",
            hint="Write the name of a ServiceAccount of Kubernetes: lower-case letters, digits, '-' and '.'. "
            "The e-mail address of an account of Google Cloud is bound to it: see docs/permissions.md.",
        )


def _output_dir(text: str, cwd: Path | None, notes: list[str]) -> str:
    """Return `output_dir`, absolute; without *cwd* it is that of a pod. Append warnings to *notes*."""
    if text.startswith("gs://"):
        parse_location(text)  # It raises the error if that names no bucket.
        return text
    if "://" in text:
        raise InvalidRequestError(
            f"output_dir={text!r} is neither a folder nor a URI in a bucket of Google Cloud.",
            hint="Write gs://BUCKET/FOLDER or leave it out. Pass an address elsewhere to the function as an argument.",
        )
    if cwd is None:
        if not text.startswith("/"):
            raise InvalidRequestError(
                f"output_dir={text!r} is neither a URI in a bucket nor an absolute path. Pods do not have the "
                "folders of this machine.",
                hint="Write gs://BUCKET/FOLDER, or leave it out: then each job has a folder in the store.",
            )
        notes.append(
            f"output_dir={text!r} is a folder of the pod: unless pod_overrides mounts a volume there, it is removed "
            "with the pod"
        )
        return text
    if text.startswith("gs:"):
        raise InvalidRequestError(
            f"output_dir={text!r} is neither a folder nor a URI in a bucket.",
            hint="Write gs://BUCKET/FOLDER.",
        )
    # Resolve it here: the job has a working directory of its own, which is removed with the job.
    try:
        return str(cwd / Path(text).expanduser())
    except RuntimeError as error:
        raise InvalidRequestError(
            f"output_dir={text!r} is in a home folder that is not known here.",
            hint="Write the path without ~, or set HOME.",
        ) from error
