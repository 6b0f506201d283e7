"""JAX for an accelerator: it replaces the lines of a project that name JAX for another machine."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Final, Literal

from packaging.specifiers import SpecifierSet

from kinetic_images.declared.requirements import KEEP_MARK, Requirement
from kinetic_images.dependencies import Dependencies

Category = Literal["cpu", "gpu", "tpu"]

ACCELERATOR_PACKAGES: Final = ("jax", "jaxlib", "libtpu", "libtpu-nightly")
"""Packages that must fit the accelerator. A project usually names them for the developer's machine."""

_EXTRAS: Final = {"cpu": (), "gpu": ("cuda12",), "tpu": ("tpu",)}
"""Extras of `jax` that bring what the accelerator needs (https://docs.jax.dev/en/latest/installation.html)."""
_OTHER_MACHINES: Final = frozenset(
    {"cpu", "cuda", "cuda12", "cuda12-local", "cuda13", "cuda13-local", "rocm", "tpu"}
)
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
    notes: tuple[str, ...] = ()


def with_accelerator_jax(
    dependencies: Dependencies, category: Category, python: str
) -> AcceleratorJax:
    """Replace the JAX that *dependencies* name by that of an accelerator of *category*.

    A version that a line names is kept. Lines marked `# kn:keep` stay as they are; if `jax` is among them,
    no other JAX is added.
    """
    kept = {line.name for line in dependencies.requirements if line.keep}
    replaced = [
        line
        for line in dependencies.requirements
        if line.name in ACCELERATOR_PACKAGES and not line.keep
    ]
    additions = [] if "jax" in kept else [_jax(replaced, category, python)]
    additions += [
        f"{line.name}{line.specifier}"
        for line in replaced
        if line.specifier and _is_limit(line, category, additions)
    ]
    rest = tuple(line for line in dependencies.requirements if line not in replaced)
    return AcceleratorJax(
        replace(dependencies, requirements=rest),
        tuple(replaced),
        tuple(dict.fromkeys(additions)),
        _notes(dependencies, replaced, additions),
    )


def _jax(replaced: Iterable[Requirement], category: Category, python: str) -> str:
    """Return the requirement of JAX for *category*, with the version that the *replaced* lines name."""
    lines = [line for line in replaced if line.name == "jax"]
    extras = {extra for line in lines for extra in line.extras} - _OTHER_MACHINES
    names = ",".join(sorted(extras | set(_EXTRAS[category])))
    head = f"jax[{names}]" if names else "jax"
    url = next((line.url for line in lines if line.url), None)
    if url is not None:
        return f"{head} @ {url}"
    version = _VERSIONS.get(python)
    limits = [SpecifierSet(line.specifier) for line in replaced if line.name in ("jax", "jaxlib")]
    if version and all(limit.contains(version, prereleases=True) for limit in limits):
        return f"{head}=={version}"
    return head + ",".join(line.specifier for line in lines if line.specifier)


def _is_limit(line: Requirement, category: Category, additions: Iterable[str]) -> bool:
    """Return whether the version of *line* must be respected beside that of `jax`."""
    if line.name == "jaxlib":
        return not any("==" in text for text in additions)
    return line.name == "libtpu" and category == "tpu"


def _notes(
    dependencies: Dependencies, replaced: list[Requirement], additions: list[str]
) -> tuple[str, ...]:
    if not replaced:
        return ()
    lines = ", ".join(f"{line.name} ({dependencies.shown(line.place)})" for line in replaced)
    by = f" by {' and '.join(additions)}" if additions else ""
    return (
        f"{lines}: replaced{by}, which fits the accelerator. To keep a line as it is, write "
        f"`# {KEEP_MARK}` at its end.",
    )
