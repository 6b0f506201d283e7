"""The user's own fields of a pod template: which ones belong to Kinetic, and how the others are merged.

Objects are merged field by field, and `null` removes a field. The lists to which Kinetic adds items are merged by
a key of these items (`containers`, `volumes`, `env`, …), or appended to (`tolerations`, `envFrom`, required pod
affinity). Any other list replaces the one in the template. Names and values of all other fields are checked by
the server, in the dry run of a submit.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from posixpath import normpath
from typing import Any, Final, Never

from kinetic_k8s.manifests import Manifest
from kinetic_k8s.manifests.labels import is_reserved
from kinetic_k8s.manifests.names import CONTAINER
from kinetic_k8s.manifests.placement import ACCELERATOR_SELECTORS, GPU, TPU
from kinetic_k8s.manifests.volumes import ANNOTATION
from kinetic_payload.errors import InvalidRequestError

_APPENDED: Final = ""
_LISTS: Final[Mapping[str, str]] = {
    "spec.containers": "name",
    "spec.initContainers": "name",
    "spec.volumes": "name",
    "spec.tolerations": _APPENDED,
    "spec.affinity.podAffinity.requiredDuringSchedulingIgnoredDuringExecution": _APPENDED,
    "spec.containers.env": "name",
    "spec.containers.envFrom": _APPENDED,
    "spec.containers.volumeMounts": "mountPath",
}
"""Lists that are merged → the field of their items that tells them apart."""
_KEPT: Final[Mapping[str, str]] = {
    "spec.volumes": "Add volumes of other names.",
    "spec.initContainers": "Add containers of other names.",
    "spec.containers.env": "Use capture_env_vars=, or another name.",
}
"""Lists with items of Kinetic that cannot be changed → what to do instead."""
_OBJECTS: Final = frozenset(
    {
        "metadata",
        "metadata.labels",
        "metadata.annotations",
        "spec",
        "spec.nodeSelector",
        "spec.affinity",
        "spec.affinity.podAffinity",
        "spec.containers.resources",
        "spec.containers.resources.requests",
        "spec.containers.resources.limits",
    }
)
"""Objects with fields of Kinetic, which cannot be removed as a whole."""
_OF_JOB: Final = (
    "imagePullSecrets",
    "priorityClassName",
    "schedulerName",
    "serviceAccountName",
)
"""Fields that hold for all pods of a job, also for those of another image on other machines."""
_OURS: Final = f"spec.containers[{CONTAINER}]"
_OWNED: Final[Mapping[str, str]] = {
    "spec.restartPolicy": "Use retries= and preemptions=.",
    "spec.terminationGracePeriodSeconds": "The runner has a limit that fits it, so it cannot be changed alone.",
    "spec.activeDeadlineSeconds": "Use timeout=.",
    "spec.nodeName": "Add to nodeSelector or affinity instead.",
    "spec.serviceAccount": "Use serviceAccountName: Kubernetes ignores the old name beside it.",
    "spec.subdomain": "Hosts find each other by it.",
    "spec.hostname": "Hosts find each other by it.",
    "spec.setHostnameAsFQDN": "Hosts find each other by their names.",
    "spec.ephemeralContainers": "A pod template cannot have them.",
    f"spec.initContainers[{CONTAINER}]": "Use another name.",
    f"{_OURS}.image": "Use container_image=.",
    f"{_OURS}.command": "The command starts Kinetic's runner.",
    f"{_OURS}.args": "The command starts Kinetic's runner.",
    f"{_OURS}.terminationMessagePath": "Kinetic reads why a job failed from it.",
    f"{_OURS}.terminationMessagePolicy": "Kinetic reads why a job failed from it.",
    f"{_OURS}.restartPolicy": "Use retries= and preemptions=.",
    f"{_OURS}.restartPolicyRules": "Use retries= and preemptions=.",
    **{
        f"{_OURS}.resources.{part}.{name}": "Use accelerator=."
        for part in ("requests", "limits")
        for name in (GPU, TPU)
    },
}
"""Fields of Kinetic → what to use instead."""


def check_overrides(overrides: Mapping[str, Any]) -> dict[str, Any]:
    """Return a copy of *overrides*, which may be merged into the template of any pod.

    Whether it changes a selector, a volume, a mount or a variable of a certain pod is checked by `merged`.

    Raises:
        InvalidRequestError: It is not JSON, or a value belongs to Kinetic; the message contains its path.
    """
    try:
        plain: dict[str, Any] = json.loads(json.dumps(overrides, allow_nan=False))
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidRequestError(
            f"pod_overrides is not JSON: {error}.",
            hint="Use text, numbers, True, False, None, lists and dicts with text as keys.",
        ) from error
    for name in plain:
        if name not in ("metadata", "spec"):
            _refuse(name, "is not a field of a pod template", "Use 'metadata' and 'spec'.")
    _merged({}, plain, "", "")
    for name, value in plain.get("metadata", {}).items():
        if name not in ("labels", "annotations"):
            _refuse(
                f"metadata.{name}", "cannot be set", "Only labels and annotations can be added."
            )
        for key, text in value.items():
            if is_reserved(key):
                _own(f"metadata.{name}[{key}]", "Use another key, such as 'team'.")
            if key == ANNOTATION and text != "true":
                _own(f"metadata.{name}[{key}]", "Data with fuse=True is mounted by it.")
    return plain


def merged(template: Manifest, overrides: Mapping[str, Any]) -> Manifest:
    """Return *template* with *overrides* merged into it.

    Raises:
        InvalidRequestError: See `check_overrides`; or a volume, a mount, a variable or a container of
            Kinetic would be changed.
    """
    if not overrides:
        return template
    overrides = check_overrides(overrides)
    selector = template["spec"].get("nodeSelector", {})
    for key, value in overrides.get("spec", {}).get("nodeSelector", {}).items():
        if key in {*selector, *ACCELERATOR_SELECTORS} and value != selector.get(key):
            _own(f"spec.nodeSelector[{key}]", "Use accelerator=.")
    return _merged(template, overrides, "", "")


def of_workers(overrides: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the part of *overrides* that also holds for pods that do not run the function."""
    spec = overrides.get("spec", {})
    return {
        **{name: value for name, value in overrides.items() if name == "metadata"},
        "spec": {name: value for name, value in spec.items() if name in _OF_JOB},
    }


def check_places(overrides: Mapping[str, Any]) -> None:
    """Raise if *overrides* selects nodes: a job under Pathways has pods on different machines.

    Raises:
        InvalidRequestError: It does; the hint names the settings for head and workers.
    """
    for name, setting in (("nodeSelector", "selector"), ("tolerations", "tolerations")):
        if overrides.get("spec", {}).get(name):
            _refuse(
                f"spec.{name}",
                "does not tell whether it is for the head or the workers of Pathways",
                f"Use the settings pathways_head_{setting} and pathways_worker_{setting}.",
            )


def _normal(path: str) -> str:
    """Return *path*, absolute and without `.`, `..` and repeated slashes."""
    return normpath("/" + path.lstrip("/"))


def _merged(ours: Manifest, theirs: Mapping[str, Any], place: str, path: str) -> Manifest:
    """Merge *theirs* into *ours*; *path* is where that is, and *place* the same without names of items.

    Raises:
        InvalidRequestError: A field of Kinetic would be changed or removed.
    """
    result = dict(ours)
    for name, value in theirs.items():
        below, where = f"{place}.{name}".lstrip("."), f"{path}.{name}".lstrip(".")
        own = result.get(name)
        if hint := _OWNED.get(where):
            _own(where, hint)
        if value is None and (below in _LISTS or below in _OBJECTS):
            _refuse(where, "cannot be removed", "Name the fields below it.")
        if below in _LISTS:
            result[name] = _merged_items(own or [], value, below, where)
        elif isinstance(value, dict):
            result[name] = _merged(own if isinstance(own, dict) else {}, value, below, where)
        elif below in _OBJECTS:
            _refuse(where, f"is not an object: {value!r}", "Write {'name': value}.")
        elif value is None:
            result.pop(name, None)
        else:
            result[name] = value
    return result


def _merged_items(ours: list[Manifest], theirs: object, place: str, path: str) -> list[Manifest]:
    """Merge the items of a list by their key, or append them."""
    if not isinstance(theirs, list):
        _refuse(path, f"is not a list: {theirs!r}", "Write a list of objects.")
    key = _LISTS[place]
    result = {each[key] if key else -number: each for number, each in enumerate(ours, 1)}
    seen = set()
    for number, each in enumerate(theirs):
        if not isinstance(each, dict) or (key and not isinstance(each.get(key), str)):
            what = f"an object with {key!r}" if key else "an object"
            hint = f"Write {{'{key or 'key'}': …}}."
            _refuse(f"{path}[{number}]", f"is not {what}: {each!r}", hint)
        name: Any = each[key] if key else number
        where = f"{path}[{name}]"
        if name in seen:
            _refuse(where, f"has the same {key!r} as one before it", "Write one item.")
        seen.add(name)
        of_runner = place == "spec.containers.env" and path.startswith(_OURS)
        if where in _OWNED or (of_runner and str(name).startswith("KINETIC_")):
            _own(where, "Use another name.")
        if name in result and (kept := _KEPT.get(place)):
            _own(where, kept)
        if key == "mountPath":
            above = f"{_normal(name).rstrip('/')}/"
            for hidden in (mount[key] for mount in ours):
                if f"{_normal(hidden)}/".startswith(above):
                    why = f"would hide {hidden}, which belongs to Kinetic"
                    _refuse(where, why, "Use another mount path.")
        found = _merged(result.get(name, {}), each, place, where)
        if key or each not in ours:
            result[name] = found
    return list(result.values())


def _own(path: str, hint: str) -> Never:
    _refuse(path, "belongs to Kinetic and cannot be changed", hint)


def _refuse(path: str, why: str, hint: str) -> Never:
    raise InvalidRequestError(f"pod_overrides: {path} {why}.", hint=hint)
