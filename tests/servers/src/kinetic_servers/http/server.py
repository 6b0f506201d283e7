"""`HttpServer`: a service in a thread of this process."""

from __future__ import annotations

import asyncio
import ssl
import tempfile
import threading
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Self, TypeVar

from aiohttp import web

from kinetic_servers.http.faults import Faults
from kinetic_servers.http.messages import Service
from kinetic_servers.http.requests import Requests
from kinetic_servers.http.web import Web

_T = TypeVar("_T")


class HttpServer:
    """A server on a port of this machine. Use it in a `with` block.

    Its files are below *folder* (the system's temporary folder by default) until it stops. With *tls*, it
    speaks HTTPS. Subclasses define `service`.
    """

    def __init__(
        self,
        *,
        folder: Path | None = None,
        host: str = "127.0.0.1",
        port: int = 0,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self.faults = Faults()
        self.requests = Requests()
        self.port = port
        """The port on which it listens, once it runs."""
        self._address = host
        self._given = folder
        self._tls = tls
        self._closing = ExitStack()
        self._loop: asyncio.AbstractEventLoop | None = None

    def service(self, folder: Path) -> Service:
        """Return what is served; called at the start, with a folder for its files."""
        raise NotImplementedError

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> None:
        if self._given is not None:
            self._given.mkdir(parents=True, exist_ok=True)
        temporary = tempfile.TemporaryDirectory(
            prefix="kinetic-server-", dir=self._given, ignore_cleanup_errors=True
        )
        folder = Path(self._closing.enter_context(temporary))
        loop = self._loop = asyncio.new_event_loop()
        thread = threading.Thread(target=loop.run_forever, name="http-server", daemon=True)
        thread.start()
        self._closing.callback(loop.close)
        self._closing.callback(thread.join)
        self._closing.callback(loop.call_soon_threadsafe, loop.stop)
        try:
            asyncio.run_coroutine_threadsafe(self._listen(folder), loop).result()
        except BaseException:
            self._closing.close()
            raise

    def stop(self) -> None:
        """Break all connections, and remove all files."""
        self._closing.close()
        self._loop = None

    @property
    def host(self) -> str:
        """The host with the port: `127.0.0.1:PORT`."""
        return f"{self._address}:{self.port}"

    @property
    def endpoint(self) -> str:
        """The address: `http://127.0.0.1:PORT`."""
        return f"{'https' if self._tls else 'http'}://{self.host}"

    def in_loop(self, work: Callable[[], _T]) -> _T:
        """Run *work* in the server's thread."""
        assert self._loop is not None, "the server is not running"

        async def do() -> _T:
            return work()

        return asyncio.run_coroutine_threadsafe(do(), self._loop).result()

    async def _listen(self, folder: Path) -> None:
        handler = Web(self.service(folder), self.faults, self.requests, tls=self._tls is not None)
        runner = web.ServerRunner(handler.server(), shutdown_timeout=0.01)  # 0 would wait for ever.
        await runner.setup()
        site = web.TCPSite(runner, self._address, self.port, backlog=1024, ssl_context=self._tls)
        await site.start()
        self.port = runner.addresses[0][1]
        loop = asyncio.get_running_loop()
        submit = asyncio.run_coroutine_threadsafe
        self._closing.callback(lambda: submit(_close(runner), loop).result())


async def _close(runner: web.ServerRunner) -> None:
    await runner.cleanup()
    # Cancel requests that still wait for a delay or for their clients.
    left = asyncio.all_tasks() - {asyncio.current_task()}
    for task in left:
        task.cancel()
    await asyncio.gather(*left, return_exceptions=True)
    await asyncio.get_running_loop().shutdown_default_executor()
