"""JAX for an accelerator: it replaces the lines of a project that name JAX for another machine."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from packaging.specifiers import SpecifierSet

from kinetic_images.declared.requirements import KEEP_MARK, Requirement
from kinetic_images.dependencies import Dependencies
from kinetic_images.errors import DependencyError
from kinetic_images.lock.pylock import public_text
from kinetic_images.targets import Category

ACCELERATOR_PACKAGES: Final = ("jax", "jaxlib", "libtpu", "libtpu-nightly")
"""Packages that must fit the accelerator. A project usually names them for the developer's machine."""

_EXTRAS: Final = {"cpu": (), "gpu": ("cuda12",), "tpu": ("tpu",)}
"""Extras of `jax` that bring what the accelerator needs (https://docs.jax.dev/en/latest/installation.html)."""
_VERSIONS: Final = {
    "3.11": "0.10.2",
    "3.12": "0.12.0.1",
    "3.13": "0.12.0.1",
    "3.14": "0.12.0.1",
}
"""Python → a version of JAX that exists with its packages for CPU, CUDA 12 and TPU (PyPI, Nov 2026)."""


@dataclass(frozen=True)
class AcceleratorJax:
    """A project's dependencies, with the JAX of an accelerator."""

    dependencies: Dependencies
    """The dependencies without the lines that were replaced."""
    replaced: tuple[Requirement, ...] = ()
    additions: tuple[str, ...] = ()
    """The requirements that replace them."""
    preferences: tuple[str, ...] = ()
    """The same in Kinetic's choice of a version, which gives way to what other requirements need."""
    notes: tuple[str, ...] = ()


def with_accelerator_jax(
    dependencies: Dependencies, category: Category, python: str
) -> AcceleratorJax:
    """Replace the JAX that *dependencies* name by that of an accelerator of *category*.

    A version that a line names is kept, and so is the version of CUDA on GPUs. Lines marked `# kn:keep` stay as they
    are; if `jax` is among them, no other JAX is added.

    Raises:
        DependencyError: A line that is kept names JAX for other accelerators only.
    """
    kept = {line.name for line in dependencies.requirements if line.keep}
    for line in dependencies.requirements:
        others = {kind for extra in line.extras if (kind := _accelerator_of(extra))}
        if line.keep and line.name == "jax" and others and category not in ("cpu", *others):
            raise DependencyError(
                f"{dependencies.shown(line.place)}: {line.canonical} is kept, and the job runs on a {category.upper()}, "
                "for which it does not have what JAX needs.",
                hint=f"Remove the mark: then the line is replaced where it does not fit. Or name it in an extra or "
                f"group of [tool.kinetic.{min(others)}] in pyproject.toml.",
            )
    replaced = [
        line
        for line in dependencies.requirements
        if line.name in ACCELERATOR_PACKAGES and not line.keep
    ]
    lines = [line for line in replaced if line.name == "jax"]
    url = next((line.url for line in lines if line.url), None)
    extras = {extra for line in lines for extra in line.extras}
    # The CUDA of a `-local` extra is installed on the developer's machine, and not in the image.
    cuda = {extra.removesuffix("-local") for extra in extras if extra.startswith("cuda")}
    own = (category == "gpu" and cuda) or _EXTRAS[category]
    names = ",".join(sorted({extra for extra in extras if not _accelerator_of(extra)}.union(own)))
    head = f"jax[{names}]" if names else "jax"
    chosen = None if "jax" in kept or url else _VERSIONS.get(python)
    for line in replaced:
        limit = SpecifierSet(line.specifier if line.name in ("jax", "jaxlib") else "")
        if chosen is not None and not limit.contains(chosen, prereleases=True):
            chosen = None
    additions: list[str] = []
    if url is not None:
        additions.append(f"{head} @ {url}")
    elif "jax" not in kept and chosen is None:
        additions.append(head + ",".join(line.specifier for line in lines if line.specifier))
    limited = {"jaxlib": chosen is None, "libtpu": category == "tpu"}
    additions += [
        f"{line.name}{line.specifier}"
        for line in replaced
        if line.specifier and limited.get(line.name)
    ]
    preferences = () if chosen is None else (f"{head}=={chosen}",)
    rest = tuple(line for line in dependencies.requirements if line not in replaced)
    # An override replaces all requirements of its name, also that of the accelerator.
    is_overridden = _EXTRAS[category] and "jax" in dependencies.settings.overridden
    overrides = (*dependencies.overrides, *((head,) if is_overridden else ()))
    notes: tuple[str, ...] = ()
    if replaced:
        named = ", ".join(f"{line.name} ({dependencies.shown(line.place)})" for line in replaced)
        texts = [public_text(text) for text in (*preferences, *additions)]
        by = f" by {' and '.join(texts)}" if texts else ""
        notes = (
            f"{named}: replaced{by}, which fits the accelerator. To keep a line as it is, write "
            f"`# {KEEP_MARK}` at its end.",
        )
    return AcceleratorJax(
        replace(dependencies, requirements=rest, overrides=overrides),
        tuple(replaced),
        tuple(dict.fromkeys(additions)),
        preferences,
        notes,
    )


def _accelerator_of(extra: str) -> Category | None:
    """Return the accelerator for which *extra* brings what JAX needs; None: it is no such extra of `jax`."""
    if extra.startswith(("cuda", "rocm")):
        return "gpu"
    if extra == "tpu":
        return "tpu"
    return "cpu" if extra == "cpu" else None
