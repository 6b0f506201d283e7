"""A process that moves a tree to or from a bucket, and reports its time and its memory."""

from __future__ import annotations

import http.client
import json
import os
import resource
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.parse import quote, urlsplit

THREADS = 32


def peak() -> float:
    """Return the most memory this process has had, in MB."""
    try:
        lines = Path("/proc/self/status").read_text().splitlines()
        return next(int(line.split()[1]) * 1024 / 1e6 for line in lines if line.startswith("VmHWM"))
    except FileNotFoundError:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6  # macOS, in bytes


def bare(endpoint: str, bucket: str, tree: Path) -> None:
    """Upload every file with the standard library's HTTP client: connections kept, 32 threads."""
    address = urlsplit(endpoint).netloc
    local = threading.local()

    def send(path: Path) -> None:
        connection = getattr(local, "connection", None)
        if connection is None:
            connection = local.connection = http.client.HTTPConnection(address)
        name = quote(f"bare/{os.getpid()}/{path.relative_to(tree)}", safe="")
        connection.request(
            "POST",
            f"/upload/storage/v1/b/{bucket}/o?uploadType=media&name={name}",
            body=path.read_bytes(),
            headers={"Content-Type": "application/octet-stream"},
        )
        answer = connection.getresponse()
        answer.read()
        if answer.status != 200:
            raise SystemExit(f"{name}: {answer.status}")

    files = [path for path in tree.rglob("*") if path.is_file()]
    with ThreadPoolExecutor(THREADS) as pool:
        list(pool.map(send, files))


def main() -> None:
    found, action, endpoint, bucket = sys.argv[1], sys.argv[2], sys.argv[3], sys.argv[4]
    tree, place = Path(sys.argv[5]), Path(sys.argv[6])
    if action == "bare":
        began = time.perf_counter()
        bare(endpoint, bucket, tree)
        Path(found).write_text(json.dumps({"seconds": time.perf_counter() - began}))
        return
    os.environ["STORAGE_EMULATOR_HOST"] = endpoint  # noqa: TID251 - the library's own
    from kinetic_payload.data.download import download_data
    from kinetic_payload.data.references import DataRef
    from kinetic_payload.data.upload import ensure_data
    from kinetic_payload.project.stat_cache import StatCache
    from kinetic_payload.stores import open_store
    from kinetic_payload.stores.store import parse_location

    store = open_store(parse_location(f"gs://{bucket}"))
    store.stat("warm")  # Load and connect the client first, so that only the transfer is measured.
    cache = StatCache.of(tree, place / "cache")
    before = peak()
    began = time.perf_counter()
    if action in ("upload", "upload-mounted"):
        ensure_data(store, tree, mounted=action == "upload-mounted", cache=cache)
    elif action == "hash":
        from kinetic_payload.project.snapshot import tree_of

        tree_of(tree, cache=cache)
    else:
        digest = ensure_data(store, tree, cache=cache)
        began = time.perf_counter()
        ref = DataRef(
            key="d0", kind="local", source=str(tree), is_dir=True, name=tree.name, digest=digest
        )
        download_data(store, ref, place / "down")
    seconds = time.perf_counter() - began
    Path(found).write_text(json.dumps({"seconds": seconds, "before": before, "peak": peak()}))


if __name__ == "__main__":
    main()
