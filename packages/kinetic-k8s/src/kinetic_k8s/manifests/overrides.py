"""The user's own fields of a pod template: which ones are accepted, and how they are merged.

Objects are merged field by field, and `null` removes a field. Lists whose items have a key (`containers`,
`initContainers`, `volumes`, `env`, `volumeMounts`, …) are merged by that key; new items are appended.
`tolerations` and `envFrom` are appended to. Any other list replaces the one in the template.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import isfinite
from typing import Any, Final, Never

from kinetic_k8s.manifests import Manifest
from kinetic_k8s.manifests.labels import is_reserved
from kinetic_k8s.manifests.names import CONTAINER
from kinetic_k8s.manifests.placement import GPU, SELECTORS, TPU
from kinetic_payload.errors import InvalidRequestError

_KEYS: Final = {
    "containers": "name",
    "initContainers": "name",
    "volumes": "name",
    "env": "name",
    "imagePullSecrets": "name",
    "resourceClaims": "name",
    "volumeMounts": "mountPath",
    "volumeDevices": "devicePath",
    "ports": "containerPort",
    "hostAliases": "ip",
}
"""Lists that are merged → the field of their items that tells them apart."""
_APPENDED: Final = ("tolerations", "envFrom")
_FIXED_SIZE: Final = ("metadata", "spec", "labels", "annotations", "nodeSelector", "resources")
"""Objects that contain fields of Kinetic, so they cannot be removed as a whole."""
_OF_JOB: Final = (
    "imagePullSecrets",
    "priorityClassName",
    "schedulerName",
    "serviceAccountName",
)
"""Fields that hold for all pods of a job, also for those of another image on other machines."""
_OURS: Final = "KINETIC_"
_OWNED_OF_POD: Final = {
    "restartPolicy": "Use retries= and preemptions=.",
    "terminationGracePeriodSeconds": "The runner is told the same period, so it cannot be changed alone.",
    "activeDeadlineSeconds": "Use timeout=.",
    "nodeName": "Add to nodeSelector or affinity instead.",
    "subdomain": "Hosts find each other by it.",
    "hostname": "Hosts find each other by it.",
    "setHostnameAsFQDN": "Hosts find each other by their names.",
    "ephemeralContainers": "A pod template cannot have them.",
}
_OWNED_OF_CONTAINER: Final = {
    "image": "Use container_image=.",
    "command": "The command starts Kinetic's runner.",
    "args": "The command starts Kinetic's runner.",
    "terminationMessagePath": "Kinetic reads why a job failed from it.",
    "terminationMessagePolicy": "Kinetic reads why a job failed from it.",
}
_BY_ACCELERATOR: Final = "Use accelerator=."


def check_overrides(overrides: Mapping[str, Any]) -> None:
    """Raise unless *overrides* may be merged into the template of any pod.

    Whether it changes a volume, a mount or a variable of a certain pod is checked by `merged`.

    Raises:
        InvalidRequestError: A value is not JSON, or belongs to Kinetic; the message contains its path.
    """
    _check_json(overrides, "")
    for name, value in overrides.items():
        if name not in ("metadata", "spec"):
            _refuse(name, "is not a field of a pod template", "Use 'metadata' and 'spec'.")
        _check_object(value, name)
    metadata, spec = overrides.get("metadata", {}), overrides.get("spec", {})
    for name, value in metadata.items():
        path = f"metadata.{name}"
        if name not in ("labels", "annotations"):
            _refuse(path, "cannot be set", "Only labels and annotations can be added.")
        for key in _check_object(value, path):
            if is_reserved(key):
                _own(f"{path}[{key}]", "Use another key, such as 'team'.")
    for name, hint in _OWNED_OF_POD.items():
        if name in spec:
            _own(f"spec.{name}", hint)
    for key in _check_object(spec.get("nodeSelector", {}), "spec.nodeSelector"):
        if key in SELECTORS:
            _own(f"spec.nodeSelector[{key}]", _BY_ACCELERATOR)
    for container in spec.get("containers", ()):
        if container["name"] == CONTAINER:
            _check_container(container, f"spec.containers[{CONTAINER}]")


def merged(template: Manifest, overrides: Mapping[str, Any]) -> Manifest:
    """Return *template* with *overrides* merged into it.

    Raises:
        InvalidRequestError: See `check_overrides`; or a volume, a mount, a variable or a container of
            Kinetic would be changed.
    """
    if not overrides:
        return template
    check_overrides(overrides)
    spec = overrides.get("spec", {})
    ours = template["spec"]
    _keep(ours, spec, "volumes", "spec", "Add volumes of other names.")
    _keep(ours, spec, "initContainers", "spec", "Add containers of other names.")
    containers = {each["name"]: each for each in ours["containers"]}
    for each in spec.get("containers", ()):
        if each["name"] in containers:
            path, container = f"spec.containers[{each['name']}]", containers[each["name"]]
            _keep(container, each, "env", path, "Use capture_env_vars=, or another name.")
            _keep(container, each, "volumeMounts", path, "Use another mount path.")
    return _merged_objects(template, overrides)


def of_workers(overrides: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the part of *overrides* that also holds for pods that do not run the function."""
    spec = overrides.get("spec", {})
    return {
        **{name: value for name, value in overrides.items() if name == "metadata"},
        "spec": {name: value for name, value in spec.items() if name in _OF_JOB},
    }


def _check_container(container: Manifest, path: str) -> None:
    for name, hint in _OWNED_OF_CONTAINER.items():
        if name in container:
            _own(f"{path}.{name}", hint)
    for variable in container.get("env", ()):
        if variable["name"].startswith(_OURS):
            _own(f"{path}.env[{variable['name']}]", "Use another name.")
    resources = container.get("resources", {})
    for part in ("requests", "limits"):
        where = f"{path}.resources.{part}"
        for key in _check_object(resources.get(part, {}), where):
            if key in (TPU, GPU):
                _own(f"{where}[{key}]", _BY_ACCELERATOR)


def _check_json(value: object, path: str) -> None:
    """Raise unless *value* is JSON, and the lists that are merged have items with their key."""
    match value:
        case Mapping():
            for name, each in value.items():
                where = f"{path}.{name}" if path else str(name)
                if not isinstance(name, str):
                    _refuse(where, f"has a key that is not text: {name!r}", _JSON)
                if name.startswith("$"):
                    _refuse(where, "is not supported", "Directives of patches cannot be used.")
                if each is None and (name in _FIXED_SIZE or name in _KEYS or name in _APPENDED):
                    _refuse(where, "cannot be removed", "Name the fields below it.")
                if name in _KEYS or name in _APPENDED:
                    _check_list(each, where, _KEYS.get(name))
                _check_json(each, where)
        case list() | tuple():
            for number, each in enumerate(value):
                _check_json(each, f"{path}[{number}]")
        case None | str() | bool() | int():
            pass
        case float() if isfinite(value):
            pass
        case _:
            _refuse(path or "the value", f"is not JSON: {value!r}", _JSON)


def _check_list(value: object, path: str, key: str | None) -> None:
    if not isinstance(value, list | tuple):
        _refuse(path, f"is not a list: {value!r}", f"Write [{{'{key or 'key'}': …}}].")
    for number, each in enumerate(value):
        if not isinstance(each, Mapping) or (key is not None and each.get(key) in (None, "")):
            what = f"is not an object with {key!r}" if key else "is not an object"
            _refuse(f"{path}[{number}]", f"{what}: {each!r}", "Items are told apart by it.")


def _check_object(value: object, path: str) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        _refuse(path, f"is not an object: {value!r}", "Write {'name': value}.")
    return value


def _keep(ours: Manifest, theirs: Manifest, name: str, path: str, hint: str) -> None:
    """Raise if an item of the list *name* in *theirs* is one of *ours*."""
    key = _KEYS[name]
    taken = {each[key] for each in ours.get(name, ())}
    for each in theirs.get(name, ()):
        if each[key] in taken:
            _own(f"{path}.{name}[{each[key]}]", hint)


def _merged_objects(ours: Manifest, theirs: Mapping[str, Any]) -> Manifest:
    result = dict(ours)
    for name, value in theirs.items():
        if value is None:
            result.pop(name, None)
        elif isinstance(value, Mapping):
            own = result.get(name)
            result[name] = _merged_objects(own if isinstance(own, dict) else {}, value)
        elif name in _KEYS:
            result[name] = _merged_lists(result.get(name, ()), value, _KEYS[name])
        elif name in _APPENDED:
            own = list(result.get(name, ()))
            result[name] = [*own, *(each for each in map(_plain, value) if each not in own)]
        else:
            result[name] = _plain(value)
    return result


def _merged_lists(
    ours: Iterable[Manifest], theirs: Iterable[Mapping[str, Any]], key: str
) -> list[Manifest]:
    result = {each[key]: each for each in ours}
    for each in theirs:
        result[each[key]] = _merged_objects(result.get(each[key], {}), each)
    return list(result.values())


def _plain(value: Any) -> Any:
    """Return *value* with the classes that `json` writes; it must be JSON."""
    match value:
        case Mapping():
            return {name: _plain(each) for name, each in value.items() if each is not None}
        case list() | tuple():
            return [_plain(each) for each in value]
    return value


_JSON: Final = "Use text, numbers, True, False, None, lists and dicts with text as keys."


def _own(path: str, hint: str) -> Never:
    _refuse(path, "belongs to Kinetic and cannot be changed", hint)


def _refuse(path: str, why: str, hint: str) -> Never:
    raise InvalidRequestError(f"pod_overrides: {path} {why}.", hint=hint)
