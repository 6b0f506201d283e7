"""Make sure that an image exists: resolve what it is made of, look for it, build it once if it is missing."""

from __future__ import annotations

import getpass
import hashlib
import json
import platform
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from math import inf
from pathlib import Path
from typing import Final

from kinetic_images.bases import (
    GLIBC_LABEL,
    PACKAGES_LABEL,
    PYTHON_LABEL,
    packages_label,
)
from kinetic_images.builders.builder import Builder, BuildReports
from kinetic_images.caches import collect_daily
from kinetic_images.claims import Claims
from kinetic_images.dependencies import Dependencies
from kinetic_images.errors import BuildError
from kinetic_images.kept_records import SharedRecords, find_record, keep_record
from kinetic_images.lock.jax import with_accelerator_jax
from kinetic_images.lock.project_locks import find_lock
from kinetic_images.lock.pylock import pylock_text
from kinetic_images.lock.request import LockRequest, requirement_name
from kinetic_images.lock.resolve import without_version
from kinetic_images.recipe import Recipe
from kinetic_images.registry.names import parse_reference
from kinetic_images.registry.registry import Registry
from kinetic_images.resolutions import resolve_on
from kinetic_images.targets import Category, Machine, Target
from kinetic_payload.errors import BucketNotFoundError, StoreError
from kinetic_payload.layout import build_claim, build_record
from kinetic_payload.stores.outages import OutageLimit
from kinetic_payload.threads import Stopped

_FORMAT: Final = 1
_LOG_LINES: Final = 5000
"""The most lines of a build's log that its record keeps."""
_RECORD_SECONDS: Final = 10.0
"""How long the record of a build waits for a bucket that does not respond."""


@dataclass(frozen=True, kw_only=True)
class ImageRequest:
    """An image with a project's dependencies, as it was requested."""

    dependencies: Dependencies
    """What the project declares, for all targets."""
    category: Category
    """The kind of accelerator, which decides on JAX."""
    python: str
    """The minor version of Python, as `3.11`."""
    machine: Machine = "x86_64"
    base: str
    """The address of the image to build on."""
    repository: str
    """Where the image is pushed: `HOST/PATH`."""
    additions: tuple[str, ...] = ()
    """Requirements that Kinetic adds, if the project does not name their packages."""
    preferences: tuple[str, ...] = ()
    """The same, without their version if a dependency requires another one."""
    present: Mapping[str, str] = field(default_factory=dict)
    """The versions of packages in the base image, by name: they are chosen if the requirements allow it."""
    own: Mapping[str, Path] = field(default_factory=dict)
    fallback: Mapping[str, Path] = field(default_factory=dict)
    """Wheels on this machine, as in `LockRequest`."""
    files: Mapping[str, bytes] = field(default_factory=dict, repr=False)
    """More files in the image, by absolute path."""
    labels: Mapping[str, str] = field(default_factory=dict)
    lists_packages: bool = False
    """Whether labels of the image name its Python, its C library and its packages: it is to be a base of others."""
    refresh: bool = False
    """Whether to resolve base and packages again, and not to use what was resolved before."""


@dataclass(frozen=True, kw_only=True)
class ImageServices:
    """What `ensure_image` works with."""

    home: Path
    """The folder of caches on this machine."""
    registry: Registry
    builders: Callable[[], Sequence[Builder]]
    """Returns the builders to use, the preferred one first. The first one without an obstacle builds."""
    shared: SharedRecords | None = None
    """Records in the builds bucket, or None: then only this machine's caches are used."""
    environ: Mapping[str, str] | None = None
    """The environment of uv (default: that of the process)."""
    reports: BuildReports = field(default_factory=BuildReports)
    resolved: Callable[[], None] = lambda: None
    """Called when the dependencies are known to be usable, before anything is built."""


@dataclass(frozen=True, kw_only=True)
class EnsuredImage:
    """An image that exists."""

    reference: str
    """By digest: `HOST/PATH@sha256:…`."""
    recipe: Recipe
    notes: tuple[str, ...]
    """Sentences for the user on what was replaced, left out or assumed."""
    built_by: str | None
    """The builder, if this call built it."""


def ensure_image(request: ImageRequest, services: ImageServices) -> EnsuredImage:
    """Return the image for *request*; build it if the registry does not have it.

    If nothing changed, this is one request to the registry. Any number of processes on any number of
    machines may ask for the same image: if they share records, one builds it, and the others wait.

    Raises:
        DependencyError: A dependency cannot be used; the message names its file and line.
        InstallError: The dependencies cannot be resolved; the message contains uv's output.
        ImageNotFoundError: There is no such base image, or it has another Python.
        RegistryError: The registry cannot be queried, or does not accept the image.
        BuildError: The build failed; the message contains the end of its log.
    """
    recipe, notes = resolve_image(request, services)
    name = parse_reference(request.repository).tagged(recipe.tag)
    digest = services.registry.digest(str(name))
    built_by = None
    project = [str(request.dependencies.source or ""), request.category, request.machine]
    key = hashlib.sha256(json.dumps([*project, request.repository]).encode()).hexdigest()
    last = services.home / "cache" / "images" / "last" / f"{key}.json"
    before = find_record(last) or {}
    if digest is not None:
        services.resolved()
    else:
        builder = _chosen(services.builders(), recipe, services.reports)
        builder.check(recipe, str(name))
        services.resolved()
        services.reports.line(recipe.changed_since(before))
        digest, built_by = _build_once(request, recipe, str(name), builder, services)
        collect_daily(services.home)
    if before != recipe.record:
        keep_record(last, recipe.record)
    return EnsuredImage(
        reference=str(name.at(digest)), recipe=recipe, notes=notes, built_by=built_by
    )


def resolve_image(request: ImageRequest, services: ImageServices) -> tuple[Recipe, tuple[str, ...]]:
    """Return what the image for *request* is made of, and notes for the user.

    Raises:
        DependencyError: A dependency cannot be used; the message names its file and line.
        InstallError: The dependencies cannot be resolved; the message contains uv's output.
        ImageNotFoundError: There is no such base image, or it has another Python.
        RegistryError: The registry of the base image cannot be queried.
    """
    target = Target(python=request.python, machine=request.machine)
    declared = request.dependencies.for_target(target.platform, target.python)
    declared.refuse_unusable(target.python)
    jax = with_accelerator_jax(declared, request.category, request.python)
    asked = {line.name for line in jax.dependencies.requirements}
    # JAX of the base image fits its accelerator.
    own_jax = (
        without_version(text) if requirement_name(text) in request.present else text
        for text in jax.preferences
    )
    lock_request = LockRequest(
        dependencies=jax.dependencies,
        replaced=jax.replaced,
        target=target,
        python=target.python,
        platform=target.platform,
        additions=(*jax.additions, *_not_in(asked, request.additions)),
        preferences=(*own_jax, *_not_in(asked, request.preferences)),
        preferred=request.present,
        own=request.own,
        fallback=request.fallback,
        locked=find_lock(jax.dependencies),
    )
    base, lock = resolve_on(
        request.base,
        lock_request,
        home=services.home,
        registry=services.registry,
        shared=services.shared,
        environ=services.environ,
        report=services.reports.line,
        repository=request.repository,
        refresh=request.refresh,
    )
    notes = (*request.dependencies.notes, *jax.notes, *lock.notes)
    cuda = [each.name for each in lock.packages if "cuda" in f"{each.name} {each.version}"]
    if cuda and request.category != "gpu":
        notes = (
            *notes,
            f"The image has CUDA, although it is for a {request.category.upper()}, because a requirement needs "
            f"{', '.join(cuda)}. Put that requirement into an extra or group that only [tool.kinetic.gpu] names.",
        )
    if not base.labelled:
        notes = (
            *notes,
            f"The base image {request.base} does not say which Python it has; Python {request.python} is "
            "assumed, as here.",
        )
    labels = dict(request.labels)
    if request.lists_packages:
        labels[PYTHON_LABEL] = base.target.python
        labels[GLIBC_LABEL] = "{}.{}".format(*base.target.glibc)
        labels[PACKAGES_LABEL] = packages_label(
            {package.name: package.version for package in lock.packages}
        )
    recipe = Recipe(
        target=base.target,
        base=base.reference,
        packages=lock.packages,
        files=request.files,
        labels=labels,
    )
    return recipe, notes


def _not_in(asked: set[str], requirements: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(text for text in requirements if requirement_name(text) not in asked)


def _build_once(
    request: ImageRequest, recipe: Recipe, image: str, builder: Builder, services: ImageServices
) -> tuple[str, str | None]:
    """Build *image*, or wait for the process that builds it; return its digest and the builder."""
    digest: str | None = None

    def done() -> bool:
        nonlocal digest
        digest = services.registry.digest(image)
        return digest is not None

    def waiting(who: str) -> None:
        services.reports.line(f"{who} is building the same image; waiting for it.")

    while digest is None:
        with ExitStack() as stack:
            mine = True  # Without shared records, it is built without a claim.
            if services.shared is not None:
                claims = Claims(services.shared.store, who_am_i())
                with suppress(BucketNotFoundError):
                    held = claims.held(build_claim(recipe.tag), done=done, waiting=waiting)
                    mine = stack.enter_context(held)
            if not done() and mine:
                return _build(request, recipe, image, builder, services), builder.name
            # Otherwise the builder that it waited for has failed: build it here.
    return digest, None


def _chosen(builders: Sequence[Builder], recipe: Recipe, reports: BuildReports) -> Builder:
    obstacles: list[str] = []
    for builder in builders:
        obstacle = builder.obstacle(recipe)
        if obstacle is None:
            for text in obstacles:
                reports.line(f"{text} It is built by {builder.name}.")
            return builder
        obstacles.append(obstacle)
    names = " or ".join(builder.name for builder in builders)
    raise BuildError(
        f"The image cannot be built by {names}: {' '.join(obstacles)}",
        hint="Require a version that has a wheel, or choose another builder with KINETIC_IMAGE_BUILDER.",
    )


def _build(
    request: ImageRequest, recipe: Recipe, image: str, builder: Builder, services: ImageServices
) -> str:
    log: deque[str] = deque(maxlen=_LOG_LINES)
    name = partial(build_record, recipe.tag)

    def line(text: str) -> None:
        log.append(text)
        services.reports.line(text)

    began = datetime.now(UTC)
    line(f"Building {image} with {len(recipe.packages)} packages ({builder.name}).")

    def keep(error: str) -> None:
        if services.shared is None:
            return
        store = services.shared.store.limited(OutageLimit(_RECORD_SECONDS, quiet=inf))
        record = {
            "image": image,
            "by": who_am_i(),
            "builder": builder.name,
            "began": began.isoformat(timespec="seconds"),
            "seconds": round((datetime.now(UTC) - began).total_seconds(), 1),
            "from": str(request.dependencies.source or ""),
            "base": recipe.base,
            "ingredients": recipe.ingredients,
            "error": error,
        }
        # Who built the image, from what, and the log, beside the lock; the image does not depend on it.
        with suppress(StoreError):
            replace(services.shared, store=store).offer(name("build.json"), record, replace=True)
            store.write(name("log.txt"), "\n".join([*log, ""]).encode())
            store.write(name("pylock.toml"), pylock_text(recipe.packages).encode())

    try:
        digest = builder.build(recipe, image, replace(services.reports, line=line))
    except Stopped:
        raise
    except Exception as failure:
        keep(str(failure) or type(failure).__name__)
        raise
    keep("")
    return digest


def who_am_i() -> str:
    """Return the user and the host of this process, for those who wait for it: `user@host`."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # In a container, a user may have no name.
        user = "unknown"
    return f"{user}@{platform.node()}"
