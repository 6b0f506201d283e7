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
    _check_fields(plain, "", "")
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


def _check_fields(value: Mapping[str, Any], place: str, path: str) -> None:
    """Raise if a field of Kinetic is set or removed below *place*, which is *path* without names of items."""
    for name, each in value.items():
        below, where = f"{place}.{name}".lstrip("."), f"{path}.{name}".lstrip(".")
        if hint := _OWNED.get(where):
            _own(where, hint)
        if (below in _LISTS or below in _OBJECTS) and each is None:
            _refuse(where, "cannot be removed", "Name the fields below it.")
        if below in _LISTS:
            if not isinstance(each, list):
                _refuse(where, f"is not a list: {each!r}", "Write a list of objects.")
            _check_items(each, below, where)
        elif isinstance(each, dict):
            _check_fields(each, below, where)
        elif below in _OBJECTS:
            _refuse(where, f"is not an object: {each!r}", "Write {'name': value}.")


def _check_items(items: list[object], place: str, path: str) -> None:
    key = _LISTS[place]
    seen = set()
    for number, each in enumerate(items):
        if not isinstance(each, dict) or (key and not isinstance(each.get(key), str)):
            what = f"an object with {key!r}" if key else "an object"
            hint = f"Write {{'{key or 'key'}': …}}."
            _refuse(f"{path}[{number}]", f"is not {what}: {each!r}", hint)
        name = each[key] if key else number
        where = f"{path}[{name}]"
        if name in seen:
            _refuse(where, f"has the same {key!r} as one before it", "Write one item.")
        seen.add(name)
        ours_of_runner = place == "spec.containers.env" and path.startswith(_OURS)
        if where in _OWNED or (ours_of_runner and str(each[key]).startswith("KINETIC_")):
            _own(where, "Use another name.")
        _check_fields(each, place, where)


def merged(template: Manifest, overrides: Mapping[str, Any]) -> Manifest:
    """Return *template* with *overrides* merged into it.

    Raises:
        InvalidRequestError: See `check_overrides`; or a volume, a mount, a variable or a container of
            Kinetic would be changed.
    """
    if not overrides:
        return template
    overrides = check_overrides(overrides)
    ours, spec = template["spec"], overrides.get("spec", {})
    selector = ours.get("nodeSelector", {})
    for key, value in spec.get("nodeSelector", {}).items():
        if key in {*selector, *ACCELERATOR_SELECTORS} and value != selector.get(key):
            _own(f"spec.nodeSelector[{key}]", "Use accelerator=.")
    _keep(ours, spec, "volumes", "spec", "Add volumes of other names.")
    _keep(ours, spec, "initContainers", "spec", "Add containers of other names.")
    containers = {each["name"]: each for each in ours["containers"]}
    for each in spec.get("containers", ()):
        if each["name"] in containers:
            path, container = f"spec.containers[{each['name']}]", containers[each["name"]]
            _keep(container, each, "env", path, "Use capture_env_vars=, or another name.")
            for mount in each.get("volumeMounts", ()):
                above = _normal(mount["mountPath"]).rstrip("/") + "/"
                for hidden in container.get("volumeMounts", ()):
                    if f"{_normal(hidden['mountPath'])}/".startswith(above):
                        _refuse(
                            f"{path}.volumeMounts[{mount['mountPath']}]",
                            f"would hide {hidden['mountPath']}, which belongs to Kinetic",
                            "Use another mount path.",
                        )
    return _merged_objects(template, overrides, "")


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


def _keep(ours: Manifest, theirs: Manifest, name: str, path: str, hint: str) -> None:
    """Raise if an item of the list *name* in *theirs* has the name of one of *ours*."""
    taken = {each["name"] for each in ours.get(name, ())}
    for each in theirs.get(name, ()):
        if each["name"] in taken:
            _own(f"{path}.{name}[{each['name']}]", hint)


def _normal(path: str) -> str:
    """Return *path*, absolute and without `.`, `..` and repeated slashes."""
    return normpath("/" + path.lstrip("/"))


def _merged_objects(ours: Manifest, theirs: Mapping[str, Any], place: str) -> Manifest:
    result = dict(ours)
    for name, value in theirs.items():
        below, own = f"{place}.{name}".lstrip("."), result.get(name)
        if value is None:
            result.pop(name, None)
        elif isinstance(value, dict):
            result[name] = _merged_objects(own if isinstance(own, dict) else {}, value, below)
        elif _LISTS.get(below) == _APPENDED:
            result[name] = [*(own or ()), *(each for each in value if each not in (own or ()))]
        elif key := _LISTS.get(below):
            items = {each[key]: each for each in own or ()}
            for each in value:
                items[each[key]] = _merged_objects(items.get(each[key], {}), each, below)
            result[name] = list(items.values())
        else:
            result[name] = value
    return result


def _own(path: str, hint: str) -> Never:
    _refuse(path, "belongs to Kinetic and cannot be changed", hint)


def _refuse(path: str, why: str, hint: str) -> Never:
    raise InvalidRequestError(f"pod_overrides: {path} {why}.", hint=hint)
