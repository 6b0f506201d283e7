"""`JobRequest`: everything a job is, decided before anything is packaged, uploaded or billed."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, get_args

from kinetic.callables import name_of
from kinetic.capture import SecretValues, capture
from kinetic.errors import ConfigurationError, InvalidRequestError
from kinetic.options import CheckedOptions, RunOptions, check_options

if TYPE_CHECKING:
    from kinetic.data import Data
    from kinetic.images import ContainerImage
    from kinetic.settings import Settings
    from kinetic_k8s.accelerators import Accelerator

BackendName = Literal["gke", "pathways", "local", "local-gke", "local-pathways"]
Semantics = Literal["gke", "pathways"]


@dataclass(frozen=True, kw_only=True)
class Target:
    """Where on a cluster a job would run."""

    project: str | None
    zone: str
    cluster: str
    namespace: str
    kube_context: str | None


@dataclass(frozen=True, kw_only=True)
class JobRequest:
    """One job as it was asked for, with nothing left to look up."""

    function_name: str
    """Qualified, such as `Trainer.fit`."""
    accelerator: Accelerator
    accelerator_text: str
    """As the user wrote it."""
    backend: BackendName
    semantics: Semantics
    """How several hosts see each other; of a local job, the backend that it emulates."""
    target: Target
    image: ContainerImage
    base_image_repo: str
    environment: SecretValues
    volumes: Mapping[str, Data]
    """By normalised mount path."""
    spot: bool
    output_dir: str | None
    """None means a folder of the job's own."""
    debug: bool
    timeout: float | None
    retries: int
    preemptions: int | None
    cpu: float | None
    memory: int | None
    shared_memory: int | None
    labels: Mapping[str, str]
    settings: Settings
    notes: tuple[str, ...] = ()
    """What the user should read before the job runs."""

    @property
    def local(self) -> bool:
        """Whether it runs on this machine."""
        return self.backend.startswith("local")


def resolve_request(
    options: RunOptions | CheckedOptions,
    function: Callable[..., Any],
    settings: Settings,
    *,
    environ: Mapping[str, str],
    cwd: Path,
) -> JobRequest:
    """Decide what the job is, from the decorator's *options* and the resolved *settings*.

    *environ* is what `capture_env_vars` takes from; *cwd* is what a relative `output_dir` is below.

    Raises:
        InvalidRequestError: Something cannot be right; nothing was done yet.
    """
    checked = check_options(options) if isinstance(options, RunOptions) else options
    backend = backend_of(settings, checked.accelerator)
    semantics = _semantics_of(backend, checked.accelerator)
    if backend.startswith("local"):
        _check_local(checked, semantics)
    else:
        _refuse_cluster(backend, settings)
    captured = capture(checked.capture, environ)
    return JobRequest(
        function_name=name_of(function),
        accelerator=checked.accelerator,
        accelerator_text=checked.given.accelerator,
        backend=backend,
        semantics=semantics,
        target=Target(
            project=settings.project.value,
            zone=settings.zone.value,
            cluster=settings.cluster.value,
            namespace=settings.namespace.value,
            kube_context=settings.kube_context.value,
        ),
        image=checked.image,
        base_image_repo=settings.base_image_repo.value,
        environment=captured.values,
        volumes=checked.volumes,
        spot=checked.spot,
        output_dir=_output_dir(settings.output_dir.value, cwd),
        debug=checked.debug,
        timeout=checked.timeout,
        retries=checked.retries,
        preemptions=checked.preemptions,
        cpu=checked.cpu,
        memory=checked.memory,
        shared_memory=checked.shared_memory,
        labels=checked.labels,
        settings=settings,
        notes=tuple(captured.notes()),
    )


def settings_arguments(options: RunOptions) -> dict[str, str | None]:
    """Return the arguments of *options* that settings can stand in for."""
    names = ("project", "zone", "cluster", "namespace", "backend", "output_dir", "base_image_repo")
    return {name: getattr(options, name) for name in names}


def backend_of(settings: Settings, accelerator: Accelerator) -> BackendName:
    """Return the backend that was asked for, else the one that suits *accelerator*.

    Local is never chosen here: who wants it says so.

    Raises:
        InvalidRequestError: There is no such backend; the hint names those that are near.
    """
    asked = settings.backend
    for name in get_args(BackendName):
        if asked.value == name:
            found: BackendName = name
            return found
    if asked.value is None:
        return "pathways" if accelerator.multi_host else "gke"
    near = difflib.get_close_matches(asked.value.lower(), get_args(BackendName), n=1)
    known = ", ".join(repr(name) for name in get_args(BackendName))
    raise InvalidRequestError(
        f"There is no backend {asked.value!r} (from: {asked.source}).",
        hint=f"Did you mean {near[0]!r}?" if near else f"There are: {known}.",
    )


def _semantics_of(backend: BackendName, accelerator: Accelerator) -> Semantics:
    chosen: Semantics
    if backend.endswith("pathways"):
        chosen = "pathways"
    elif backend.endswith("gke"):
        chosen = "gke"
    else:
        chosen = "pathways" if accelerator.multi_host else "gke"
    if chosen == "pathways" and accelerator.kind != "tpu":
        raise InvalidRequestError(
            f"Pathways runs TPU slices, and {accelerator.canonical} is none.",
            hint="Leave the backend out, or ask for a TPU.",
        )
    return chosen


def _refuse_cluster(backend: BackendName, settings: Settings) -> None:
    if settings.project.value is None:
        raise ConfigurationError(
            f"The backend {backend!r} needs a project, and none is set.",
            hint="Give project=..., set KINETIC_PROJECT or GOOGLE_CLOUD_PROJECT, or choose a profile; "
            "to run on this machine instead: backend='local' or KINETIC_BACKEND=local.",
        )
    raise InvalidRequestError(
        f"The backend {backend!r} is not in this version of Kinetic: the local one is.",
        hint="Set backend='local' or KINETIC_BACKEND=local to run on this machine, "
        "with the shape of the slice emulated.",
    )


def _check_local(checked: CheckedOptions, semantics: Semantics) -> None:
    from kinetic.local.emulation import shape_of

    shape_of(checked.accelerator, semantics)
    if checked.image.mode == "prebuilt":
        raise InvalidRequestError(
            "The local backend has no use for prebuilt images: it runs no containers.",
            hint=_LOCAL_IMAGES,
        )
    if checked.image.mode == "custom":
        raise InvalidRequestError(
            f"The local backend runs no containers, so it cannot use {checked.image.uri!r}.",
            hint=_LOCAL_IMAGES,
        )


def _output_dir(text: str | None, cwd: Path) -> str | None:
    if text is None or "://" in text:
        return text
    if text.startswith("gs:"):
        raise InvalidRequestError(
            f"output_dir={text!r} is neither a folder nor a place in a bucket.",
            hint="Write gs://BUCKET/FOLDER.",
        )
    # The job has another working directory, and what is written there would be lost with it.
    try:
        return str(cwd / Path(text).expanduser())
    except RuntimeError as error:
        raise InvalidRequestError(
            f"output_dir={text!r} is in a home folder that is not known here.",
            hint="Write the path without ~, or set HOME.",
        ) from error


_LOCAL_IMAGES: Final = (
    "Leave container_image out to use this interpreter, "
    "or use container_image='bundled' for an isolated environment."
)
