"""JAX for an accelerator: it replaces the lines of a project that name JAX for another machine."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Final, Literal

from packaging.specifiers import SpecifierSet

from kinetic_images.declared.requirements import KEEP_MARK, Requirement
from kinetic_images.dependencies import Dependencies
from kinetic_images.lock.pylock import public_text

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
    preferences: tuple[str, ...] = ()
    """The same in Kinetic's choice of a version, which gives way to what other requirements need."""
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
    lines = [line for line in replaced if line.name == "jax"]
    url = next((line.url for line in lines if line.url), None)
    head = _head(lines, category)
    chosen = None if "jax" in kept or url else _choice(replaced, python)
    additions: list[str] = []
    if url is not None:
        additions.append(f"{head} @ {url}")
    elif "jax" not in kept and chosen is None:
        additions.append(head + ",".join(line.specifier for line in lines if line.specifier))
    if chosen is None:
        additions += [
            f"{line.name}{line.specifier}"
            for line in replaced
            if line.name == "jaxlib" and line.specifier
        ]
    additions += [
        f"{line.name}{line.specifier}"
        for line in replaced
        if line.name == "libtpu" and line.specifier and category == "tpu"
    ]
    preferences = () if chosen is None else (f"{head}=={chosen}",)
    rest = tuple(line for line in dependencies.requirements if line not in replaced)
    # An override replaces all requirements of its name, also that of the accelerator.
    is_overridden = _EXTRAS[category] and "jax" in dependencies.settings.overridden
    overrides = (*dependencies.overrides, *((_head((), category),) if is_overridden else ()))
    return AcceleratorJax(
        replace(dependencies, requirements=rest, overrides=overrides),
        tuple(replaced),
        tuple(dict.fromkeys(additions)),
        preferences,
        _notes(dependencies, replaced, [*preferences, *additions]),
    )


def _head(lines: Iterable[Requirement], category: Category) -> str:
    extras = {extra for line in lines for extra in line.extras} - _OTHER_MACHINES
    names = ",".join(sorted(extras | set(_EXTRAS[category])))
    return f"jax[{names}]" if names else "jax"


def _choice(replaced: Iterable[Requirement], python: str) -> str | None:
    """Return Kinetic's choice of a version, unless the *replaced* lines exclude it."""
    version = _VERSIONS.get(python)
    limits = [SpecifierSet(line.specifier) for line in replaced if line.name in ("jax", "jaxlib")]
    fits = version and all(limit.contains(version, prereleases=True) for limit in limits)
    return version if fits else None


def _notes(
    dependencies: Dependencies, replaced: list[Requirement], additions: list[str]
) -> tuple[str, ...]:
    if not replaced:
        return ()
    lines = ", ".join(f"{line.name} ({dependencies.shown(line.place)})" for line in replaced)
    by = f" by {' and '.join(map(public_text, additions))}" if additions else ""
    return (
        f"{lines}: replaced{by}, which fits the accelerator. To keep a line as it is, write "
        f"`# {KEEP_MARK}` at its end.",
    )
