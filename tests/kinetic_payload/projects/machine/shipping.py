"""Packs a call as a submit does, and collects it as a handle does."""

import os
import pickle
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

from kinetic_payload.calls import call as calls
from kinetic_payload.calls.dump import dump_call
from kinetic_payload.data import references
from kinetic_payload.data.references import DataRef

ROOT = Path(os.environ["TEST_ROOT"])
WORKSPACE = Path(os.environ["TEST_WORKSPACE"])
IGNORED = os.environ["TEST_IGNORED"].split()


class Data:
    def __init__(self, path):
        self.path = path

    def __deepcopy__(self, memo):
        return self

    def __reduce_ex__(self, protocol):
        collect = references.collecting.get()
        if collect is not None:
            return references.data_path, (collect(self),)
        return super().__reduce_ex__(protocol)


def ships(path):
    relative = Path(path).relative_to(ROOT)
    return not any(part in IGNORED for part in relative.parts)


def dump(function, *args, volumes=None, **kwargs):
    plan = SimpleNamespace(
        root=ROOT,
        paths=tuple(os.environ["TEST_PATHS"].split(":")),
        cwd="",
        main=os.environ["TEST_MAIN"] or None,
        kind=os.environ["TEST_KIND"],
    )
    return dump_call(
        function, args, kwargs, plan=plan, ships=ships, data_type=Data, volumes=volumes
    )


def write(dumped, path):
    refs = [
        DataRef(
            key=found.key,
            kind="local",
            source=found.value.path,
            is_dir=True,
            name="data",
            mount=found.mount,
        )
        for found in dumped.data
    ]
    with open(path, "wb") as stream:
        return dumped.write(stream, refs=refs, context_digest=None, kinetic_version="0")


def ship(function, *args, **kwargs):
    """Run the call in another process, which cannot see the project itself."""
    write(dump(function, *args, **kwargs), WORKSPACE / "payload.pkl")
    snapshot = WORKSPACE / "project"
    if not snapshot.exists():
        shutil.copytree(ROOT, snapshot, ignore=shutil.ignore_patterns(*IGNORED, "__pycache__"))
    hidden = ROOT.with_name(ROOT.name + "-hidden")
    ROOT.rename(hidden)
    try:
        worker = os.environ["TEST_WORKER"]
        subprocess.run(
            [sys.executable, worker, WORKSPACE],
            check=True,
            cwd=WORKSPACE,
            env={key: value for key, value in os.environ.items() if key != "PYTHONPATH"},
        )
    finally:
        hidden.rename(ROOT)
    with open(WORKSPACE / "value.pkl", "rb") as stream:
        ended, value = pickle.load(stream)
    if ended == "raised":
        raise value
    return value


def compare(facts):
    """Call *facts* as it is and shipped; print where the two differ, and return how many there are."""
    there, here = ship(facts), facts()
    for name in here:
        if here[name] != there[name]:
            print(name, "is", there[name], "and not", here[name])
    return len(here)
