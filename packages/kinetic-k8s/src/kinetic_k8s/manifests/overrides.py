"""The user's own fields of a pod template: which ones are accepted, and how they are merged.

Objects are merged field by field, and `null` removes a field. Lists whose items have a key (`containers`,
`initContainers`, `volumes`, `env`, `volumeMounts`, …) are merged by that key; new items are appended.
`tolerations`, `envFrom` and required pod affinity are appended to. Any other list replaces the one in the
template. These names have a meaning only where the schema of a pod has them: labels may have the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import isfinite
from posixpath import normpath
from typing import Any, Final, Never

from kinetic_k8s.manifests import Manifest
from kinetic_k8s.manifests.labels import is_label_key, is_label_value, is_reserved
from kinetic_k8s.manifests.names import CONTAINER
from kinetic_k8s.manifests.placement import ACCELERATOR_SELECTORS, GPU, TPU
from kinetic_k8s.manifests.volumes import ANNOTATION
from kinetic_payload.errors import InvalidRequestError

_Place = tuple[str, ...]
"""The names of the fields above a value; items of a list are at the place of the list."""

_APPENDED: Final = ""
_OF_CONTAINER: Final = {
    "env": "name",
    "envFrom": _APPENDED,
    "volumeMounts": "mountPath",
    "volumeDevices": "devicePath",
    "ports": "containerPort",
}
_LISTS: Final[Mapping[_Place, Mapping[str, str]]] = {
    ("spec",): {
        "containers": "name",
        "initContainers": "name",
        "volumes": "name",
        "imagePullSecrets": "name",
        "resourceClaims": "name",
        "hostAliases": "ip",
        "tolerations": _APPENDED,
    },
    ("spec", "containers"): _OF_CONTAINER,
    ("spec", "initContainers"): _OF_CONTAINER,
    ("spec", "affinity", "podAffinity"): {
        "requiredDuringSchedulingIgnoredDuringExecution": _APPENDED
    },
}
"""Place → the lists that are merged there → the field of their items that tells them apart."""
_NONE: Final[Mapping[str, str]] = {}
_WITH_FIELDS_OF_KINETIC: Final[tuple[_Place, ...]] = (
    ("metadata",),
    ("metadata", "labels"),
    ("metadata", "annotations"),
    ("spec",),
    ("spec", "nodeSelector"),
    ("spec", "affinity"),
    ("spec", "affinity", "podAffinity"),
    ("spec", "containers", "resources"),
)
"""Objects that cannot be removed as a whole."""
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
    "terminationGracePeriodSeconds": "The runner has a limit that fits it, so it cannot be changed alone.",
    "activeDeadlineSeconds": "Use timeout=.",
    "nodeName": "Add to nodeSelector or affinity instead.",
    "serviceAccount": "Use serviceAccountName: Kubernetes ignores the old name beside it.",
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
    "restartPolicy": "Use retries= and preemptions=.",
    "restartPolicyRules": "Use retries= and preemptions=.",
}
_BY_ACCELERATOR: Final = "Use accelerator=."


def check_overrides(overrides: Mapping[str, Any]) -> None:
    """Raise unless *overrides* may be merged into the template of any pod.

    Whether it changes a selector, a volume, a mount or a variable of a certain pod is checked by `merged`.

    Raises:
        InvalidRequestError: A value is not JSON, or belongs to Kinetic; the message contains its path.
    """
    _check_json(overrides, "", ())
    for name, value in overrides.items():
        if name not in ("metadata", "spec"):
            _refuse(name, "is not a field of a pod template", "Use 'metadata' and 'spec'.")
        _check_object(value, name)
    metadata, spec = overrides.get("metadata", {}), overrides.get("spec", {})
    for name, value in metadata.items():
        path = f"metadata.{name}"
        if name not in ("labels", "annotations"):
            _refuse(path, "cannot be set", "Only labels and annotations can be added.")
        _check_keys(value, path, values_of_labels=name == "labels")
        for key in value:
            if is_reserved(key):
                _own(f"{path}[{key}]", "Use another key, such as 'team'.")
        if name == "annotations" and value.get(ANNOTATION, "true") != "true":
            _own(f"{path}[{ANNOTATION}]", "Data with fuse=True is mounted by it.")
    for name, hint in _OWNED_OF_POD.items():
        if name in spec:
            _own(f"spec.{name}", hint)
    _check_keys(spec.get("nodeSelector", {}), "spec.nodeSelector", values_of_labels=True)
    for container in spec.get("initContainers", ()):
        if container["name"] == CONTAINER:
            _own(f"spec.initContainers[{CONTAINER}]", "Use another name.")
    for container in spec.get("containers", ()):
        path = f"spec.containers[{container['name']}]"
        _check_object(container.get("resources", {}), f"{path}.resources")
        if container["name"] == CONTAINER:
            _check_container(container, path)


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
    _keep_selectors(ours.get("nodeSelector", {}), spec.get("nodeSelector", {}))
    _keep(ours, spec, "volumes", "spec", "Add volumes of other names.")
    _keep(ours, spec, "initContainers", "spec", "Add containers of other names.")
    containers = {each["name"]: each for each in ours["containers"]}
    for each in spec.get("containers", ()):
        if each["name"] in containers:
            path, container = f"spec.containers[{each['name']}]", containers[each["name"]]
            _keep(container, each, "env", path, "Use capture_env_vars=, or another name.")
            _keep_mounts(container, each, path)
    return _merged_objects(template, overrides, ())


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


def _check_json(value: object, path: str, place: _Place) -> None:
    """Raise unless *value* is JSON, and the lists that are merged have items with their key."""
    match value:
        case Mapping():
            lists = _LISTS.get(place, _NONE)
            for name, each in value.items():
                where = f"{path}.{name}" if path else str(name)
                if not isinstance(name, str):
                    _refuse(where, f"has a key that is not text: {name!r}", _JSON)
                if name.startswith("$"):
                    _refuse(where, "is not supported", "Directives of patches cannot be used.")
                below = (*place, name)
                if each is None and (name in lists or below in _WITH_FIELDS_OF_KINETIC):
                    _refuse(where, "cannot be removed", "Name the fields below it.")
                if name in lists:
                    _check_list(each, where, lists[name])
                _check_json(each, where, below)
        case list() | tuple():
            for number, each in enumerate(value):
                _check_json(each, f"{path}[{number}]", place)
        case None | str() | bool() | int():
            pass
        case float() if isfinite(value):
            pass
        case _:
            _refuse(path or "the value", f"is not JSON: {value!r}", _JSON)


def _check_list(value: object, path: str, key: str) -> None:
    if not isinstance(value, list | tuple):
        _refuse(path, f"is not a list: {value!r}", f"Write [{{'{key or 'key'}': …}}].")
    wanted, type_name = (int, "a number") if key == "containerPort" else (str, "text")
    seen: set[object] = set()
    for number, each in enumerate(value):
        where = f"{path}[{number}]"
        if not isinstance(each, Mapping) or (key and each.get(key) in (None, "")):
            what = f"is not an object with {key!r}" if key else "is not an object"
            _refuse(where, f"{what}: {each!r}", "Items are told apart by it.")
        if key and (not isinstance(each[key], wanted) or isinstance(each[key], bool)):
            _refuse(f"{where}.{key}", f"is not {type_name}: {each[key]!r}", f"Write {type_name}.")
        if key == "containerPort" and not isinstance(each.get("protocol", "TCP"), str):
            _refuse(f"{where}.protocol", f"is not text: {each['protocol']!r}", "Write 'TCP'.")
        if key and (identity := _identity(each, key)) in seen:
            _refuse(
                where, f"has the same {key!r} as one before it: {each[key]!r}", "Write one item."
            )
        elif key:
            seen.add(identity)


def _check_keys(value: object, path: str, *, values_of_labels: bool) -> None:
    """Raise unless the keys of *value* can be those of labels, and its values are text or None."""
    for key, text in _check_object(value, path).items():
        if not is_label_key(key):
            _refuse(
                f"{path}[{key}]",
                "is not a valid key",
                "Use at most 63 letters, digits, '-', '_' and '.', such as 'team'. A DNS name and '/' may "
                "precede them.",
            )
        valid = isinstance(text, str) and (not values_of_labels or is_label_value(text))
        if text is not None and not valid:
            _refuse(
                f"{path}[{key}]",
                f"is not a valid value: {text!r}",
                "Use at most 63 letters, digits, '-', '_' and '.'."
                if values_of_labels
                else "Use text.",
            )


def _check_object(value: object, path: str) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        _refuse(path, f"is not an object: {value!r}", "Write {'name': value}.")
    return value


def _keep_selectors(ours: Mapping[str, str], theirs: Mapping[str, Any]) -> None:
    """Raise if *theirs* changes a selector of *ours*, or names an accelerator."""
    for key, value in theirs.items():
        known = key in ours or key in ACCELERATOR_SELECTORS
        if known and (key not in ours or value != ours[key]):
            _own(f"spec.nodeSelector[{key}]", _BY_ACCELERATOR)


def _keep(ours: Manifest, theirs: Manifest, name: str, path: str, hint: str) -> None:
    """Raise if an item of the list *name* in *theirs* has the name of one of *ours*."""
    taken = {each["name"] for each in ours.get(name, ())}
    for each in theirs.get(name, ()):
        if each["name"] in taken:
            _own(f"{path}.{name}[{each['name']}]", hint)


def _keep_mounts(ours: Manifest, theirs: Manifest, path: str) -> None:
    """Raise if a mount of *theirs* would hide one of *ours*."""
    for each in theirs.get("volumeMounts", ()):
        above = _normal(each["mountPath"]).rstrip("/") + "/"
        for mount in ours.get("volumeMounts", ()):
            if f"{_normal(mount['mountPath'])}/".startswith(above):
                _refuse(
                    f"{path}.volumeMounts[{each['mountPath']}]",
                    f"would hide {mount['mountPath']}, which belongs to Kinetic",
                    "Use another mount path.",
                )


def _normal(path: str) -> str:
    """Return *path*, absolute and without `.`, `..` and repeated slashes."""
    return normpath("/" + path.lstrip("/"))


def _merged_objects(ours: Manifest, theirs: Mapping[str, Any], place: _Place) -> Manifest:
    result, lists = dict(ours), _LISTS.get(place, _NONE)
    for name, value in theirs.items():
        if value is None:
            result.pop(name, None)
        elif isinstance(value, Mapping):
            own = result.get(name)
            result[name] = _merged_objects(
                own if isinstance(own, dict) else {}, value, (*place, name)
            )
        elif lists.get(name) == _APPENDED:
            own = list(result.get(name, ()))
            result[name] = [*own, *(each for each in map(_plain, value) if each not in own)]
        elif name in lists:
            result[name] = _merged_lists(result.get(name, ()), value, lists[name], (*place, name))
        else:
            result[name] = _plain(value)
    return result


def _merged_lists(
    ours: Iterable[Manifest], theirs: Iterable[Mapping[str, Any]], key: str, place: _Place
) -> list[Manifest]:
    result = {_identity(each, key): each for each in ours}
    for each in theirs:
        name = _identity(each, key)
        result[name] = _merged_objects(result.get(name, {}), each, place)
    return list(result.values())


def _identity(item: Mapping[str, Any], key: str) -> object:
    # One port may be open for several protocols.
    return (item[key], item.get("protocol", "TCP")) if key == "containerPort" else item[key]


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
