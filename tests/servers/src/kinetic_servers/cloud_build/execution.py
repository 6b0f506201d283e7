"""One build: fetch the source, run the steps, push the images, and write the log meanwhile."""

from __future__ import annotations

import io
import os
import tarfile
import threading
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from time import monotonic
from typing import Any, Final
from urllib.parse import quote

import urllib3
from google.cloud.devtools import cloudbuild_v1

from kinetic_servers.cloud_build.steps import Pushed, Step, Steps
from kinetic_servers.cloud_build.validation import replaced

_FLUSH: Final = 0.2
"""Seconds between writes of the log."""
_Status: Final = cloudbuild_v1.Build.Status
_Failure: Final = cloudbuild_v1.Build.FailureInfo.FailureType


class Execution:
    """The work of one build. Its `Build` is changed while it runs."""

    def __init__(
        self,
        build: Any,
        steps: Steps,
        objects: BucketObjects,
        secrets: Mapping[str, str],
        variables: Mapping[str, str],
    ) -> None:
        self.build = build
        self.cancelled = threading.Event()
        self.over = threading.Event()
        """Set when the build has ended."""
        self._steps = steps
        self._objects = objects
        self._secrets = secrets
        self._variables = variables
        self._stopped = threading.Event()
        self._began = monotonic()
        self._text: list[str] = []
        self._written = 0

    def cancel(self) -> None:
        self.cancelled.set()
        self._stopped.set()

    def run(self) -> None:
        build = self.build
        build.status, build.start_time = _Status.WORKING, datetime.now(UTC)
        flushing = threading.Thread(target=self._keep_flushing, daemon=True)
        flushing.start()
        timer = threading.Timer(build.timeout.total_seconds() or 3600, self._stopped.set)
        timer.daemon = True
        timer.start()
        try:
            with TemporaryDirectory(prefix="kinetic-cloud-build-") as folder:
                workspace = Path(folder, "workspace")
                workspace.mkdir()
                status = self._perform(workspace)
        except Exception as error:
            self._write(f"ERROR: {error!r}\n")
            build.status_detail, status = repr(error), _Status.INTERNAL_ERROR
        timer.cancel()
        if status is not _Status.SUCCESS and self._stopped.is_set():
            status = _Status.CANCELLED if self.cancelled.is_set() else _Status.TIMEOUT
        if status is _Status.TIMEOUT:
            self._write("TIMEOUT\nERROR: context deadline exceeded\n")
        elif status is _Status.CANCELLED:
            self._write("CANCELLED\nERROR: context canceled\n")
        self.end(status)
        flushing.join()

    def queued_too_long(self) -> bool:
        """Return whether the build has waited in the queue for too long."""
        return monotonic() - self._began > (self.build.queue_ttl.total_seconds() or 3600)

    def end(self, status: Any) -> None:
        """End the build, which may have been in the queue until now."""
        self._flush()  # The log is complete before the status is.
        self.build.finish_time = datetime.now(UTC)
        self.build.status = status
        self.over.set()

    def _perform(self, workspace: Path) -> Any:
        self._write(f'starting build "{self.build.id}"\n\n')
        self._fetch(workspace)
        self._write("BUILD\n")
        for number, step in enumerate(self.build.steps):
            if not self._run_step(number, step, workspace):
                return _Status.FAILURE
        return self._push()

    def _fetch(self, workspace: Path) -> None:
        source = self.build.source.storage_source
        if "storage_source" not in self.build.source:
            return
        place = f"gs://{source.bucket}/{source.object_}"
        self._write(f"FETCHSOURCE\nFetching storage object: {place}\n")
        data = self._objects.read(source.bucket, source.object_)
        with tarfile.open(fileobj=io.BytesIO(data)) as archive:
            archive.extractall(workspace, filter="tar")
        # The real service builds on a new machine. Here, docker's client sends only what differs from the last
        # folder named `.` in size and time, and the times in contexts of Kinetic are all equal.
        for path in filter(Path.is_file, workspace.rglob("*")):
            os.utime(path, follow_symlinks=False)

    def _run_step(self, number: int, step: Any, workspace: Path) -> bool:
        prefix = ""
        if len(self.build.steps) > 1:
            prefix = f"Step #{number}" + (f' - "{step.id}"' if step.id else "") + ": "
        secrets = {
            secret.env: self._secrets[secret.version_name]
            for secret in self.build.available_secrets.secret_manager
            if secret.env in step.secret_env
        }
        given = dict(replaced(each, self._variables).split("=", 1) for each in step.env)
        self._write(f"{prefix}Already have image (with digest): {step.name}\n")
        step.status = _Status.WORKING
        code = self._steps.run(
            Step(
                image=replaced(step.name, self._variables),
                arguments=tuple(replaced(each, self._variables) for each in step.args),
                entrypoint=replaced(step.entrypoint, self._variables),
                environment={**given, **secrets},
                folder=workspace / step.dir_,
                volumes={
                    volume.path: self._volume(volume.name, workspace) for volume in step.volumes
                },
                write=lambda text: self._write(prefix + text),
                stopped=self._stopped,
            )
        )
        step.exit_code = code
        if self._stopped.is_set():
            step.status = _Status.CANCELLED if self.cancelled.is_set() else _Status.TIMEOUT
            return False
        if code != 0:
            step.status = _Status.FAILURE
            detail = f'build step {number} "{step.name}" failed: step exited with non-zero status: {code}'
            self._fail(_Failure.USER_BUILD_STEP, detail)
            return False
        step.status = _Status.SUCCESS
        return True

    def _volume(self, name: str, workspace: Path) -> Path:
        folder = workspace.parent / "volumes" / name
        folder.mkdir(parents=True, exist_ok=True)
        return folder

    def _push(self) -> Any:
        if self.build.images:
            self._write("PUSH\n")
        for image in self.build.images:
            name = replaced(image, self._variables)
            self._write(f"Pushing {name}\n")
            if self._stopped.is_set():
                return _Status.FAILURE
            done = self._steps.push(name)
            if not isinstance(done, Pushed):
                self._fail(
                    getattr(_Failure, done.kind), f'failed to push image "{name}": {done.detail}'
                )
                return _Status.FAILURE
            self.build.results.images.append(
                cloudbuild_v1.BuiltImage(name=name, digest=done.digest)
            )
        self._write("DONE\n")
        return _Status.SUCCESS

    def _fail(self, kind: Any, detail: str) -> None:
        self.build.failure_info = {"type_": kind, "detail": detail}
        self.build.status_detail = detail
        self._write(f"ERROR\nERROR: {detail}\n")

    def _write(self, text: str) -> None:
        self._text.append(text)

    def _keep_flushing(self) -> None:
        while not self.over.wait(_FLUSH):
            with suppress(Exception):  # The next write contains everything.
                self._flush()

    def _flush(self) -> None:
        bucket, _, folder = self.build.logs_bucket.removeprefix("gs://").partition("/")
        count = len(self._text)
        if not bucket or count == self._written:
            return
        data = "".join(self._text[:count]).encode()
        name = f"{folder}/log-{self.build.id}.txt" if folder else f"log-{self.build.id}.txt"
        if self._objects.write(bucket, name, data):
            self._written = count


class BucketObjects:
    """Reads and writes objects of the bucket server at *endpoint* (`http://HOST:PORT`)."""

    def __init__(self, endpoint: str) -> None:
        self._endpoint = endpoint
        self._http = urllib3.PoolManager(retries=urllib3.Retry(3, backoff_factor=0.1))

    def read(self, bucket: str, name: str) -> bytes:
        """Return the bytes of an object."""
        path = f"/storage/v1/b/{quote(bucket, safe='')}/o/{quote(name, safe='')}?alt=media"
        found = self._http.request("GET", self._endpoint + path)
        assert found.status == 200, f"{name}: status {found.status}"
        return found.data

    def write(self, bucket: str, name: str, data: bytes) -> bool:
        """Write an object; return whether this succeeded."""
        path = f"/upload/storage/v1/b/{quote(bucket, safe='')}/o?uploadType=media&name={quote(name, safe='')}"
        headers = {"Content-Type": "text/plain; charset=utf-8"}
        done = self._http.request("POST", self._endpoint + path, body=data, headers=headers)
        return done.status == 200
