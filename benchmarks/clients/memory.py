"""A process that packages, uploads or downloads a tree, and reports its peak memory."""

import json
import resource
import shutil
import sys
from pathlib import Path

from kinetic_payload.project.context import ensure_context, fetch_context
from kinetic_payload.project.snapshot import take_snapshot
from kinetic_payload.stores import open_store
from kinetic_payload.stores.store import parse_location


def peak() -> float:
    """Return the most memory this process has had, in MB."""
    try:
        # On Linux, `getrusage` includes the process that started this one.
        lines = Path("/proc/self/status").read_text().splitlines()
        return next(int(line.split()[1]) * 1024 / 1e6 for line in lines if line.startswith("VmHWM"))
    except FileNotFoundError:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6  # macOS, in bytes


if __name__ == "__main__":
    action, tree, place = sys.argv[2], Path(sys.argv[3]), sys.argv[4]
    store = open_store(parse_location(place))
    if action == "pack":
        with open("/dev/null", "wb") as sink:
            take_snapshot(tree).write(sink)
    elif action == "upload":
        ensure_context(store, take_snapshot(tree))
    else:
        from kinetic_payload.archives.extract import extract_archive

        digest = take_snapshot(tree).digest
        archive, extracted = Path(f"{place}-context.zip"), Path(f"{place}-extracted")
        fetch_context(store, digest, archive)
        extract_archive(archive, extracted, expected_digest=digest)
        archive.unlink()
        shutil.rmtree(extracted)
    Path(sys.argv[1]).write_text(json.dumps({"peak": peak()}))
