"""Secrets (signing key, captured environment) and ConfigMaps (the runner)."""

from __future__ import annotations

import re
from base64 import b64decode, b64encode
from binascii import Error as Base64Error
from collections.abc import Mapping
from typing import Final

from kinetic_k8s.manifests import Manifest
from kinetic_k8s.manifests.labels import APP, APP_VALUE
from kinetic_k8s.manifests.names import (
    KEY_IN_SECRET,
    KEY_SECRET,
    environment_secret_name,
    runner_config_map_name,
)
from kinetic_payload.errors import InvalidRequestError

LARGEST: Final = 1024 * 1024
"""The maximum size of all values of a Secret or a ConfigMap, in bytes; a limit of Kubernetes."""
LONGEST_VARIABLE: Final = 128 * 1024 - 1
"""The maximum size of an environment variable with its name, in bytes; a limit of Linux (`MAX_ARG_STRLEN`)."""

_KEY: Final = re.compile(r"[-._A-Za-z0-9]{1,253}")


def owner_reference(owner: Manifest) -> Manifest:
    """Return a reference to *owner*; an object that has it is removed with *owner*.

    *owner* is the manifest that the server returned.
    """
    return {
        "apiVersion": owner["apiVersion"],
        "kind": owner["kind"],
        "name": owner["metadata"]["name"],
        "uid": owner["metadata"]["uid"],
    }


def check_environment(values: Mapping[str, str]) -> None:
    """Raise unless a Secret can hold *values*.

    Raises:
        InvalidRequestError: A name cannot be a key of a Secret, or one value, or all together, are too large.
    """
    for name in values:
        if not _KEY.fullmatch(name):
            raise InvalidRequestError(
                f"The environment variable {name!r} cannot be captured: Kubernetes does not accept "
                "its name.",
                hint="Names may have letters, digits, '-', '_' and '.'.",
            )
        size = len(f"{name}=".encode()) + len(values[name].encode())
        if size > LONGEST_VARIABLE:
            raise InvalidRequestError(
                f"The environment variable {name!r} has {size:,} bytes with its name; Linux accepts at "
                f"most {LONGEST_VARIABLE:,}.",
                hint="Pass the value as an argument of the function.",
            )
    _check_size(
        "The captured environment", {name: value.encode() for name, value in values.items()}
    )


def environment_secret(job: Manifest, values: Mapping[str, str]) -> Manifest:
    """Render the Secret with captured environment variables, owned by *job*.

    *job* is the manifest that the server returned.

    Raises:
        InvalidRequestError: A name cannot be a key of a Secret, or the values are too large.
    """
    check_environment(values)
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {
            "name": environment_secret_name(job["metadata"]["name"]),
            "labels": job["metadata"]["labels"],
            "ownerReferences": [owner_reference(job)],
        },
        "immutable": True,
        "type": "Opaque",
        "data": _encoded({name: value.encode() for name, value in values.items()}),
    }


def key_secret(key: bytes) -> Manifest:
    """Render the Secret with the signing key of a namespace. It has no owner, so it is not removed."""
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": KEY_SECRET, "labels": {APP: APP_VALUE}},
        "immutable": True,
        "type": "Opaque",
        "data": _encoded({KEY_IN_SECRET: key.hex().encode()}),
    }


def key_in(secret: Manifest) -> bytes:
    """Return the signing key that *secret* contains.

    Raises:
        InvalidRequestError: *secret* contains no key, or the key is not hexadecimal.
    """
    try:
        text = b64decode(secret["data"][KEY_IN_SECRET], validate=True).decode("ascii")
        return bytes.fromhex(text.strip())
    except (KeyError, TypeError, Base64Error, ValueError) as error:
        raise InvalidRequestError(
            f"The Secret {KEY_SECRET!r} has no key in hexadecimal under {KEY_IN_SECRET!r}.",
            hint="Something else made that Secret: rename it, or use another namespace.",
        ) from error


def runner_config_map(digest: str, name: str, content: bytes, owner: Manifest) -> Manifest:
    """Render the immutable ConfigMap with the file *name* whose SHA-256 is *digest*.

    Jobs share it: each job that uses it becomes an owner, and it is removed with the last owner.

    Raises:
        InvalidRequestError: The file is too large.
    """
    data = {name: content}
    _check_size("The runner", data)
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {
            "name": runner_config_map_name(digest),
            "labels": {APP: APP_VALUE},
            "ownerReferences": [owner_reference(owner)],
        },
        "immutable": True,
        "binaryData": _encoded(data),
    }


def added_owner(owner: Manifest) -> Manifest:
    """Return the strategic merge patch that adds *owner* to the owners of an object."""
    return {"metadata": {"ownerReferences": [owner_reference(owner)]}}


def _encoded(data: Mapping[str, bytes]) -> dict[str, str]:
    return {name: b64encode(value).decode("ascii") for name, value in data.items()}


def _check_size(what: str, data: Mapping[str, bytes]) -> None:
    size = sum(len(name) + len(value) for name, value in data.items())
    if size > LARGEST:
        largest = max(data, key=lambda name: len(data[name]))
        raise InvalidRequestError(
            f"{what} has {size:,} bytes; Kubernetes accepts {LARGEST:,} in one object.",
            hint=f"The largest part is {largest!r} with {len(data[largest]):,} bytes.",
        )
