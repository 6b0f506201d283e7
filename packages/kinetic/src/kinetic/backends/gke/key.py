"""The signing key of a namespace, in its Secret `kinetic-key`."""

from __future__ import annotations

import secrets
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from kinetic.errors import ConfigurationError, InvalidRequestError
from kinetic.jobs.services import LOOK
from kinetic_k8s.cluster.creation import ensure_key
from kinetic_k8s.errors import NotPermittedError
from kinetic_k8s.manifests.names import KEY_SECRET
from kinetic_k8s.manifests.secrets import key_in
from kinetic_payload.records.signing import KEY_SIZE

if TYPE_CHECKING:
    from kinetic_k8s.cluster.client import ApiServer


class ClusterKey:
    """The key of the namespace of *cluster*; it is read once, because it never changes."""

    def __init__(self, cluster: ApiServer) -> None:
        self._cluster = cluster
        self._lock = threading.Lock()
        self._key: bytes | None = None

    def read(self) -> bytes | None:
        """Return the key, or None if none was made yet. See `KeySource.read`."""
        with self._lock, self._translated("read"):
            if self._key is None:
                found = self._cluster.within(LOOK).get("Secret", KEY_SECRET)
                self._key = None if found is None else _checked(key_in(found))
            return self._key

    def ensure(self) -> bytes:
        """Return the key; make one if there is none. See `KeySource.ensure`."""
        with self._lock, self._translated("read or created"):
            if self._key is None:
                found = ensure_key(self._cluster, lambda: secrets.token_bytes(KEY_SIZE))
                self._key = _checked(found)
            return self._key

    @property
    def place(self) -> str:
        """The place of the key, for messages."""
        return f"the Secret {KEY_SECRET!r} in {self._cluster.identity}"

    @property
    def hint(self) -> str:
        """The hint of errors about a record that was signed with another key."""
        return (
            "Nothing of it was unpickled. If it was submitted to another cluster or namespace, choose that "
            "(KINETIC_KUBE_CONTEXT, or KINETIC_PROJECT, KINETIC_ZONE and KINETIC_CLUSTER; KINETIC_NAMESPACE); if you trust everyone who can write to this "
            "bucket, accept it once with KINETIC_TRUST_BUCKET=1."
        )

    @contextmanager
    def _translated(self, verb: str) -> Iterator[None]:
        try:
            yield
        except NotPermittedError as error:
            raise ConfigurationError(
                f"The key that signs jobs cannot be {verb}. {error.message}",
                hint=f"{error.hint} The key proves that a result was written by the job. "
                "To read results without that proof once, if you trust everyone who can write to "
                "the bucket, set KINETIC_TRUST_BUCKET=1.",
            ) from error
        except ConfigurationError:
            raise
        except InvalidRequestError as error:
            raise ConfigurationError(error.message, hint=error.hint) from error


def _checked(key: bytes) -> bytes:
    if len(key) != KEY_SIZE:
        raise InvalidRequestError(
            f"The key in the Secret {KEY_SECRET!r} has {len(key)} bytes instead of {KEY_SIZE}.",
            hint="Something else made that Secret: rename it, or use another namespace.",
        )
    return key
