"""`GcsServer`: a strict Google Cloud Storage in a thread of this process."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Final, TypeVar

from kinetic_payload.layout import Env
from kinetic_servers.gcs.access import Tokens
from kinetic_servers.gcs.buckets import make_bucket
from kinetic_servers.gcs.service import GcsService
from kinetic_servers.gcs.state import Bucket, State, StoredObject
from kinetic_servers.http.server import HttpServer

_T = TypeVar("_T")

PROJECT: Final = "test-project"


class GcsServer(HttpServer):
    """A server that follows the published JSON API strictly.

    Without *tokens* all callers may do everything; with them, every caller needs one. Without *md5* objects
    have no MD5: computing it takes more time than the rest of a large upload.
    """

    def __init__(
        self,
        *,
        folder: Path | None = None,
        tokens: Tokens | None = None,
        host: str = "127.0.0.1",
        port: int = 0,
        md5: bool = True,
    ) -> None:
        super().__init__(folder=folder, host=host, port=port)
        self.tokens = tokens
        self._md5 = md5
        self._state: State | None = None

    def service(self, folder: Path) -> GcsService:
        self._state = State(folder, md5=self._md5)
        return GcsService(self._state, self.tokens)

    def stop(self) -> None:
        """Close all connections, and remove all objects."""
        super().stop()
        if self._state is not None:
            for upload in self._state.uploads.values():
                upload.incoming.discard()
            self._state = None

    @property
    def environment(self) -> dict[str, str]:
        """The environment variables that make clients use this server."""
        if self.tokens is None:
            return {"STORAGE_EMULATOR_HOST": self.endpoint}
        return {Env.STORAGE_ENDPOINT: self.endpoint}

    @property
    def machine_environment(self) -> dict[str, str]:
        """Variables, in addition to `environment`, that give a new process the identity of `tokens.machine`."""
        # By default Google's library stops looking for a metadata server after three seconds.
        address = {"GCE_METADATA_HOST": self.host, "GCE_METADATA_IP": self.host}
        return {**address, "GCE_METADATA_TIMEOUT": "60"}

    def create_bucket(
        self,
        name: str,
        *,
        project: str = PROJECT,
        location: str = "US",
        regions: tuple[str, ...] = (),
    ) -> None:
        """Create a bucket; *regions* are those of a dual-region."""
        self._do(lambda state: make_bucket(state, name, project, location, regions))

    def objects(self, bucket: str, prefix: str = "") -> list[StoredObject]:
        """Return the objects of a bucket, in order of their names."""

        def found(state: State) -> list[StoredObject]:
            home = state.buckets[bucket]
            return [home.objects[name] for name in home.names if name.startswith(prefix)]

        return self._do(found)

    def names(self, bucket: str, prefix: str = "") -> list[str]:
        """Return the names of the objects of a bucket, in order."""
        return [stored.name for stored in self.objects(bucket, prefix)]

    def read(self, bucket: str, name: str) -> bytes:
        return self._do(lambda state: state.buckets[bucket].objects[name]).content.read()

    def allow(self, bucket: str, policy: Mapping[str, Iterable[str]] | None) -> None:
        """Give only these principals only these permissions; None: all permissions to everyone.

        `allUsers` includes callers without a token.
        """
        only = policy and {who: frozenset(what) for who, what in policy.items()}
        self._do(lambda state: setattr(state.buckets[bucket], "policy", only))

    def limit_pages(self, size: int) -> None:
        """Let a page of a list have at most *size* objects and prefixes, instead of 1,000."""
        self._do(lambda state: setattr(state, "largest_page", size))

    def disable_billing(self, bucket: str) -> None:
        """Disable billing for the project of a bucket."""
        self._do(lambda state: setattr(state.buckets[bucket], "billing", False))

    def age(self, bucket: str, prefix: str, by: timedelta) -> None:
        """Change the times of objects as if they were older."""
        seconds = by.total_seconds()

        def older(found: Bucket) -> None:
            for stored in list(found.objects.values()):
                if stored.name.startswith(prefix):
                    created, updated = stored.created - seconds, stored.updated - seconds
                    found.put(replace(stored, created=created, updated=updated))

        self._do(lambda state: older(state.buckets[bucket]))

    def expire_uploads(self, *, status: int = 410) -> None:
        """Let all unfinished resumable uploads expire, as after a week."""

        def expire(state: State) -> None:
            for upload in state.uploads.values():
                if upload.finished is None:
                    upload.gone = status

        self._do(expire)

    def _do(self, work: Callable[[State], _T]) -> _T:
        """Run *work* in the server's thread, the only one that may change the state."""
        state = self._state
        assert state is not None, "the server is not running"
        return self.in_loop(lambda: work(state))
