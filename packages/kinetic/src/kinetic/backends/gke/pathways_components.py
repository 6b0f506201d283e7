"""The components of Pathways, as the settings `pathways_…` describe them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar

from kinetic.errors import ConfigurationError, InvalidRequestError, KineticError
from kinetic.user_warnings import warn_once
from kinetic_k8s.manifests import Manifest
from kinetic_k8s.manifests.components import PathwaysComponents
from kinetic_k8s.manifests.labels import is_label_key, is_label_value
from kinetic_k8s.manifests.pod import Resources
from kinetic_payload.layout import PATHWAYS_SCRATCH

if TYPE_CHECKING:
    from kinetic.settings.settings import Setting, Settings
    from kinetic_images.registry.registry import Registry
    from kinetic_payload.stores.store import Location

T = TypeVar("T")

_TAG: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}")
_EFFECTS: Final = ("NoSchedule", "PreferNoSchedule", "NoExecute")
_RESOURCES: Final = ("cpu", "memory")
_SHARED: Final = "none"


def components_of(
    settings: Settings, store: Location, tag: str | None = None
) -> PathwaysComponents:
    """Return the components of Pathways for a job whose objects are at *store*; *tag* unless a setting names it.

    Raises:
        ConfigurationError: A setting is not valid; the message names its source.
    """
    default = PathwaysComponents(scratch=f"{store}/{PATHWAYS_SCRATCH}")
    tag = settings.pathways_tag.value or tag
    if tag is not None and not _TAG.fullmatch(tag):
        raise _invalid("tag", settings.pathways_tag, "write the tag alone, such as jax-0.10.0")
    given: dict[str, Any] = {
        "scratch": _read(settings, "scratch", _scratch),
        "server_image": _read(settings, "server_image", _image)
        or (_with_tag(default.server_image, tag) if tag else None),
        "proxy_image": _read(settings, "proxy_image", _image)
        or (_with_tag(default.proxy_image, tag) if tag else None),
        "head_selector": _read(settings, "head_selector", _selector),
        "head_tolerations": _read(settings, "head_tolerations", _tolerations),
        "worker_selector": _read(settings, "worker_selector", _selector),
        "worker_tolerations": _read(settings, "worker_tolerations", _tolerations),
    }
    for name in ("manager", "proxy", "function", "worker"):
        standard: Resources = getattr(default, name)
        given[name] = _read(settings, name, partial(_resources, default=standard))
    components = replace(
        default, **{name: each for name, each in given.items() if each is not None}
    )
    topology = _read(settings, "head_topology", _topology)
    if topology is not None:
        components = replace(components, head_topology=None if topology == _SHARED else topology)
    return components


def fitting_tag(
    image: str, jax: str | None, registry: Registry, warn: Callable[[str], None]
) -> str | None:
    """Return the tag of the component *image* for the version *jax* of the job; None, after a warning, if none is known.

    https://cloud.google.com/ai-hypercomputer/docs/workloads/pathways-on-cloud: there are tags `jax-VERSION`.
    """
    why = "which JAX the job's image has is not known"
    if jax is not None:
        tag = f"jax-{jax}"
        try:
            if registry.digest(_with_tag(image, tag)) is not None:
                return tag
            why = f"there is no tag {tag}"
        except KineticError as error:
            why = f"the tag {tag} could not be checked: {error.message}"
    warn_once(
        warn,
        f"Pathways runs {image}, because {why}. It must fit the job's JAX: KINETIC_PATHWAYS_TAG names another "
        "tag, such as jax-0.10.0",
    )
    return None


def tag_of(components: PathwaysComponents) -> str:
    """Return the tag of the image of resource manager and workers; `latest` if it names none."""
    name = components.server_image.partition("@")[0].rpartition("/")[2]
    return name.partition(":")[2] or "latest"


def _read(settings: Settings, name: str, parse: Callable[[str], T]) -> T | None:
    setting: Setting[str | None] = getattr(settings, f"pathways_{name}")
    if setting.value is None:
        return None
    try:
        return parse(setting.value)
    except (ValueError, InvalidRequestError) as error:
        raise _invalid(name, setting, str(error)) from error


def _invalid(name: str, setting: Setting[str | None], hint: str) -> ConfigurationError:
    return ConfigurationError(
        f"pathways_{name} is {setting.value!r} ({setting.source}), which is not valid.",
        hint=f"{hint[0].upper()}{hint[1:]}{'' if hint.endswith('.') else '.'}",
    )


def _scratch(text: str) -> str:
    if not re.fullmatch(r"gs://[^/\s]+(/\S*)?", text):
        raise ValueError("write a folder in a bucket: gs://BUCKET/FOLDER")
    return text


def _image(text: str) -> str:
    if not re.fullmatch(r"[^\s]+", text) or "://" in text:
        raise ValueError("write the address of an image: HOST/PATH:TAG")
    return text


def _with_tag(image: str, tag: str) -> str:
    return f"{image.rpartition(':')[0]}:{tag}"


def _resources(text: str, default: Resources) -> Resources:
    found = dict(_pairs(text))
    if not set(found) <= set(_RESOURCES):
        raise ValueError("write for example cpu=8,memory=32G")
    return Resources(cpu=found.get("cpu", default.cpu), memory=found.get("memory", default.memory))


def _selector(text: str) -> dict[str, str]:
    found = dict(_pairs(text))
    for key, value in found.items():
        if not is_label_key(key) or not is_label_value(value):
            raise ValueError("write labels of nodes: KEY=VALUE,KEY=VALUE")
    return found


def _pairs(text: str) -> Iterator[tuple[str, str]]:
    for part in text.split(","):
        key, equals, value = part.strip().partition("=")
        if not key or not equals:
            raise ValueError("write NAME=VALUE, separated by commas")
        yield key, value


def _tolerations(text: str) -> tuple[Manifest, ...]:
    found = []
    for part in text.split(","):
        taint, _, effect = part.strip().partition(":")
        key, equals, value = taint.partition("=")
        if not is_label_key(key) or not is_label_value(value) or effect not in ("", *_EFFECTS):
            raise ValueError(
                "write taints of nodes: KEY=VALUE:NoSchedule, or KEY for all of that key"
            )
        toleration = {"key": key, "operator": "Equal" if equals else "Exists"}
        if equals:
            toleration["value"] = value
        if effect:
            toleration["effect"] = effect
        found.append(toleration)
    return tuple(found)


def _topology(text: str) -> str:
    if text != _SHARED and not is_label_key(text):
        raise ValueError(f"write the key of a label of nodes, or {_SHARED!r} to share nodes")
    return text
