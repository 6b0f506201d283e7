"""Launches of jobs with a fake runner."""

from __future__ import annotations

import hashlib
import os
import signal
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from types import MappingProxyType
from typing import Any, Final

from kinetic.backends.backend import Backend, Ending, Launch
from kinetic.backends.local.launch import LocalEnvironment
from kinetic.jobs.outcome import outcome_of_vanished
from kinetic.jobs.records import find_outcome
from kinetic.submit.capture import SecretValues
from kinetic.waiting import Deadline
from kinetic_payload.calls.call import CallHeader
from kinetic_payload.data.references import DataRef
from kinetic_payload.layout import JobObjects
from kinetic_payload.records.encode import encode
from kinetic_payload.records.job import JobRecord
from kinetic_payload.records.outcome import Outcome
from kinetic_payload.records.signing import UNSIGNED
from kinetic_payload.stores.store import Store
from kinetic_servers.fakes import a_record, a_request


def fake_runner_source() -> bytes:
    """Return a fake runner in one file, with the command line of the real runner.

    Its payload is Python source, run with `attempt`, `host` and `hosts` in its globals. It needs
    only the standard library and starts at once. Its store is a folder, or a bucket of the server
    that `STORAGE_EMULATOR_HOST` names.
    """
    return _FAKE_RUNNER


def a_launch(
    store: Store,
    code: str,
    *,
    job_id: str = "",
    hosts: int = 1,
    retries: int = 0,
    timeout: float | None = None,
    bundle: bytes | None = None,
    interpreter: str = sys.executable,
    memory: int | None = None,
    debug: bool = False,
    environment: Mapping[str, str] = MappingProxyType({}),
    keep_awake: tuple[str, ...] = (),
    **more: Any,
) -> Launch:
    """Store a job whose fake runner runs *code*, as submit does, and return its launch."""
    payload = code.encode()
    # Unique: tests run in parallel, and processes are found by the id of their job.
    job_id = job_id or f"cpu-f-20260101-000000-{os.urandom(4).hex()[:7]}"
    record = a_record(
        job_id=job_id, backend="local", bucket_name=str(store.location), hosts=hosts,
        retries=retries, timeout=timeout, debug=debug,
        payload_digest=hashlib.sha256(payload).hexdigest(),
    )  # fmt: skip
    store.write(JobObjects(job_id).payload, payload)
    data = encode(record)
    store.write(JobObjects(job_id).handle, data)
    place = LocalEnvironment(
        f"python:{interpreter}", interpreter, bundle or fake_runner_source(), keep_awake
    )
    request = replace(a_request(memory=memory, debug=debug), captured_env=SecretValues(environment))
    digest = hashlib.sha256(data).hexdigest()
    return Launch(record=record, record_digest=digest, request=request, environment=place, **more)


def a_payload(*digests: str) -> bytes:
    """Return a payload that cannot be called, with references to uploaded data of these *digests*."""
    refs = tuple(
        DataRef(key=f"d{n}", kind="local", source="x", is_dir=True, name="x", digest=digest)
        for n, digest in enumerate(digests)
    )
    header = CallHeader(
        python="3.11.0", cloudpickle="3", kinetic="0", function="f", module="m", context_digest=None,
        paths=(), cwd="", main=None, main_kind="script", data=refs,
    )  # fmt: skip
    return header.encode() + b"\n"


def outcome_of(store: Store, job_id: str) -> Outcome | None:
    """Return the job's outcome in the store, or None."""
    found = find_outcome(store, job_id)
    return None if found is None else found.record


def job_ids_of(backend: Backend) -> list[str]:
    """Return the ids of the jobs that *backend* lists."""
    return [job.job_id for job in backend.list()]


def await_outcome(
    backend: Backend, store: Store, record: JobRecord, seconds: float = 60
) -> Outcome:
    """Wait until the job has an outcome or has vanished, and return its outcome."""
    deadline = Deadline(seconds)
    with backend.watch([record]) as watch:
        while True:
            outcome = outcome_of(store, record.job_id)
            if outcome is not None:
                return outcome
            seen = backend.observe(record)
            if seen.ending is Ending.VANISHED:
                backend.tidy([record])
                now, verify = time.time(), UNSIGNED.verify
                reported = outcome_of_vanished(store, record, seen, now=now, verify=verify)
                return outcome_of(store, record.job_id) or reported
            if deadline.passed:
                raise AssertionError(f"{record.job_id} has no outcome after {seconds} s: {seen}")
            watch.wait(deadline.at_most(5))


def kill_hard(pid: int) -> None:
    """Send SIGKILL unless the process is gone."""
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


_FAKE_RUNNER: Final = b'''"""A stand-in for the runner."""
import argparse, hashlib, json, os, signal, sys, threading, time, traceback

parser = argparse.ArgumentParser()
for name in ("store", "job", "record-digest", "workspace", "grace", "pending-uploads", "report-seconds"):
    parser.add_argument("--" + name)
for name in ("attempt", "lifeline"):
    parser.add_argument("--" + name, type=int)
args = parser.parse_args()
attempt = args.attempt
host = int(os.environ["KINETIC_HOST_INDEX"])
folder = f"{args.job}/attempts/{attempt}"

if args.store.startswith("gs://"):
    from urllib.error import HTTPError
    from urllib.parse import quote
    from urllib.request import ProxyHandler, Request, build_opener

    bucket, _, prefix = args.store[5:].partition("/")
    ask = build_opener(ProxyHandler({})).open

    def url(api, rest, name):
        name = quote(f"{prefix}/{name}" if prefix else name, safe="")
        return f"{os.environ['STORAGE_EMULATOR_HOST']}/{api}storage/v1/b/{bucket}/o{rest}{name}"

    def create(name, record):
        query = "?uploadType=media&ifGenerationMatch=0&name="
        try:
            ask(Request(url("upload/", query, name), json.dumps(record).encode())).close()
        except HTTPError as error:
            if error.code != 412:
                raise

    def read(name):
        try:
            with ask(url("", "/", name) + "?alt=media") as answer:
                return answer.read()
        except HTTPError as error:
            if error.code != 404:
                raise
else:

    def create(name, record):
        path = os.path.join(args.store, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        part = f"{path}.{os.getpid()}"
        with open(part, "w") as stream:
            stream.write(json.dumps(record))
        try:
            os.link(part, path)
        except FileExistsError:
            pass
        os.unlink(part)

    def read(name):
        try:
            with open(os.path.join(args.store, name), "rb") as stream:
                return stream.read()
        except FileNotFoundError:
            pass


def report(succeeded, reason, code, message=""):
    sys.stdout.flush()
    create(f"{folder}/host-{host}.json", {
        "job_id": args.job, "attempt": attempt, "host": host, "succeeded": succeeded,
        "reason": reason, "phase": "report" if succeeded else "call", "exit_code": code,
        "message": message, "version": 1})


def follow_lifeline():
    while os.read(args.lifeline, 1):
        continue  # A message; this runner needs none.
    os._exit(137)


def terminated(*_):
    report(False, "terminated", 143, "SIGTERM came.")
    os._exit(143)


signal.signal(signal.SIGTERM, terminated)
threading.Thread(target=follow_lifeline, daemon=True).start()
handle = read(f"{args.job}/handle.json")
assert hashlib.sha256(handle).hexdigest() == args.record_digest
record = json.loads(handle)
hosts = record["hosts"]
create(f"{folder}/host-{host}.claim", {"pid": os.getpid()})
source = read(f"{args.job}/payload.pkl")
assert hashlib.sha256(source).hexdigest() == record["payload_digest"]
if "timeout" in record:
    signal.signal(signal.SIGALRM, lambda *_: (report(False, "timeout", 1, "Too long."), os._exit(1)))
    signal.setitimer(signal.ITIMER_REAL, record["timeout"])
try:
    exec(source, {"attempt": attempt, "host": host, "hosts": hosts, "__name__": "__main__"})
except SystemExit as end:
    code = end.code or 0
    if code:
        report(False, "exited", code, f"exit {code}")
        sys.exit(code)
except BaseException as error:
    traceback.print_exc()
    report(False, "exception", 1, f"{type(error).__name__}: {error}")
    sys.exit(1)
report(True, "returned", 0)
if host == 0:
    names = [f"{folder}/host-{n}.json" for n in range(hosts)]
    until = time.monotonic() + 60
    reports = [None]
    while None in reports and time.monotonic() < until:
        time.sleep(0.002)
        reports = [read(name) for name in names]
    if None in reports or not all(json.loads(one)["succeeded"] for one in reports):
        sys.exit(1)
    data = reports[0]
    create(f"{args.job}/outcome.json", {
        "job_id": args.job, "status": "succeeded", "attempt": attempt, "host": 0,
        "digest": hashlib.sha256(data).hexdigest(), "written_by": "runner",
        "written_at": time.time(), "version": 1})
'''
