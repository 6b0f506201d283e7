"""`GcsServer`: a strict Google Cloud Storage in a thread of this process."""

from __future__ import annotations

import asyncio
import contextlib
import tempfile
import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import TypeVar

from aiohttp import web

from kinetic_payload.layout import Env
from kinetic_payload.testing.gcs.access import Tokens
from kinetic_payload.testing.gcs.api import Api
from kinetic_payload.testing.gcs.buckets import make_bucket
from kinetic_payload.testing.gcs.faults import Faults
from kinetic_payload.testing.gcs.requests import Requests
from kinetic_payload.testing.gcs.state import Bucket, State, StoredObject
from kinetic_payload.testing.gcs.web import Web

_T = TypeVar("_T")

PROJECT = "test-project"


class GcsServer:
    """A server on a port of this machine that follows the published JSON API strictly.

    Objects are files below *folder* (the system's temporary folder by default) until it stops. Without *tokens*
    all callers may do everything; with them, every caller needs one. Without *md5* objects have no MD5:
    computing it takes more time than the rest of a large upload.
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
        self.faults = Faults()
        self.requests = Requests()
        self.tokens = tokens
        self._host = host
        self._port = port
        self._given = folder
        self._md5 = md5
        self._closing = contextlib.ExitStack()
        self._state: State | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    def __enter__(self) -> GcsServer:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> None:
        """Start the server."""
        if self._given is not None:
            self._given.mkdir(parents=True, exist_ok=True)
        temporary = tempfile.TemporaryDirectory(
            prefix="kinetic-gcs-", dir=self._given, ignore_cleanup_errors=True
        )
        folder = Path(self._closing.enter_context(temporary))
        self._state = State(folder, md5=self._md5)
        loop = asyncio.new_event_loop()
        self._loop = loop
        thread = threading.Thread(target=loop.run_forever, name="gcs-server", daemon=True)
        thread.start()
        self._closing.callback(loop.close)
        self._closing.callback(thread.join)
        self._closing.callback(loop.call_soon_threadsafe, loop.stop)
        try:
            asyncio.run_coroutine_threadsafe(self._listen(self._state), loop).result()
        except BaseException:
            self._closing.close()
            raise

    def stop(self) -> None:
        """Close all connections, and remove all objects."""
        self._closing.close()
        self._loop = None
        if self._state is not None:
            for upload in self._state.uploads.values():
                upload.incoming.discard()
            self._state = None

    @property
    def endpoint(self) -> str:
        """The address: `http://127.0.0.1:PORT`."""
        return f"http://{self._host}:{self._port}"

    @property
    def environment(self) -> dict[str, str]:
        """The environment variables that make clients use this server."""
        if self.tokens is None:
            return {"STORAGE_EMULATOR_HOST": self.endpoint}
        return {Env.STORAGE_ENDPOINT: self.endpoint}

    @property
    def machine_environment(self) -> dict[str, str]:
        """Variables, in addition to `environment`, that give a new process the identity of `tokens.machine`."""
        address = self.endpoint.removeprefix("http://")
        # By default Google's library stops looking for a metadata server after three seconds.
        return {
            "GCE_METADATA_HOST": address,
            "GCE_METADATA_IP": address,
            "GCE_METADATA_TIMEOUT": "60",
        }

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
        return self._do(
            lambda state: [
                state.buckets[bucket].objects[name]
                for name in state.buckets[bucket].names
                if name.startswith(prefix)
            ]
        )

    def names(self, bucket: str, prefix: str = "") -> list[str]:
        """Return the names of the objects of a bucket, in order."""
        return [stored.name for stored in self.objects(bucket, prefix)]

    def read(self, bucket: str, name: str) -> bytes:
        """Return an object's bytes."""
        return self._do(lambda state: state.buckets[bucket].objects[name]).content.read()

    def allow(self, bucket: str, policy: Mapping[str, Iterable[str]] | None) -> None:
        """Give only these principals only these permissions; None: all permissions to everyone.

        `allUsers` includes callers without a token.
        """
        only = policy and {who: frozenset(what) for who, what in policy.items()}
        self._change(bucket, lambda found: setattr(found, "policy", only))

    def disable_billing(self, bucket: str) -> None:
        """Disable billing for the project of a bucket."""
        self._change(bucket, lambda found: setattr(found, "billing", False))

    def age(self, bucket: str, prefix: str, by: timedelta) -> None:
        """Change the times of objects as if they were older."""
        seconds = by.total_seconds()

        def older(found: Bucket) -> None:
            for stored in list(found.objects.values()):
                if stored.name.startswith(prefix):
                    created, updated = stored.created - seconds, stored.updated - seconds
                    found.put(replace(stored, created=created, updated=updated))

        self._change(bucket, older)

    def expire_uploads(self, *, status: int = 410) -> None:
        """Let all unfinished resumable uploads expire, as after a week."""

        def expire(state: State) -> None:
            for upload in state.uploads.values():
                if upload.finished is None:
                    upload.gone = status

        self._do(expire)

    async def _listen(self, state: State) -> None:
        server = Web(Api(state, self.tokens), self.faults, self.requests).server()
        runner = web.ServerRunner(server, shutdown_timeout=0.01)  # 0 would wait for ever.
        await runner.setup()
        site = web.TCPSite(runner, self._host, self._port, backlog=1024)
        await site.start()
        self._port = runner.addresses[0][1]
        loop = asyncio.get_running_loop()
        self._closing.callback(
            lambda: asyncio.run_coroutine_threadsafe(_close(runner), loop).result()
        )

    def _change(self, bucket: str, change: Callable[[Bucket], None]) -> None:
        self._do(lambda state: change(state.buckets[bucket]))

    def _do(self, work: Callable[[State], _T]) -> _T:
        """Run *work* in the loop's thread, the only one that may change the state."""
        assert self._loop is not None, "the server is not running"
        assert self._state is not None
        state = self._state

        async def do() -> _T:
            return work(state)

        return asyncio.run_coroutine_threadsafe(do(), self._loop).result()


async def _close(runner: web.ServerRunner) -> None:
    await runner.cleanup()
    # Cancel requests that still wait for a delay or for their clients.
    left = asyncio.all_tasks() - {asyncio.current_task()}
    for task in left:
        task.cancel()
    await asyncio.gather(*left, return_exceptions=True)
    await asyncio.get_running_loop().shutdown_default_executor()
