"""What is true of every module of ours: errors and private files of one kind. Ruff checks docstrings and length."""

from __future__ import annotations

import ast
import importlib
from pathlib import Path

import pytest

from kinetic.errors import KineticError

ROOT = Path(__file__).parents[2]

SOURCES = {
    ".".join(path.relative_to(folder).with_suffix("").parts).removesuffix(".__init__"): path
    for folder in ROOT.glob("packages/*/src")
    for path in sorted(folder.rglob("*.py"))
}
"""Module → file."""

STARTING_POINTS = ("kinetic_cli.__main__", "kinetic_runner.bundle.start")
"""Importing them runs something."""

NOT_OURS_TO_CATCH = {
    "kinetic_payload.http.session.NoResponseError": "goes from one part of an HTTP client to another",
    "kinetic_payload.http.retry.GaveUpError": "goes from one part of an HTTP client to another",
    "kinetic_payload.http.retry.TransientError": "goes from one part of an HTTP client to another",
    "kinetic.jobs.outages.WaitStopped": "goes from one of our threads to another",
    "kinetic.testing.functions.Sad": "is a user's own, in the contract of backends",
    "kinetic_payload.threads.Stopped": "goes from one of our threads to another",
    "kinetic_payload.stores.gcs.download.CorruptedError": "goes from one part of the bucket store to another",
    "kinetic_payload.stores.gcs.resumable_download.ReplacedError": "goes from one part of the bucket store to another",
    "kinetic_payload.stores.gcs.errors.NotFoundError": "goes from one part of the bucket store to another",
    "kinetic_payload.stores.gcs.errors.PreconditionError": "goes from one part of the bucket store to another",
    "kinetic_payload.stores.gcs.errors.ResponseError": "goes from one part of the bucket store to another",
    "kinetic_payload.stores.gcs.errors.RetryError": "goes from one part of the bucket store to another",
    "kinetic_runner.child.stop_requests.Terminated": "SIGTERM, which user code must not catch as an Exception",
}
"""Exceptions that no user ever sees, and why they are not errors."""


@pytest.mark.parametrize("package", sorted({module.partition(".")[0] for module in SOURCES}))
def test_every_exception_of_ours_is_a_kinetic_error(package: str) -> None:
    strays = []
    for module in SOURCES:
        if module.partition(".")[0] != package or module in STARTING_POINTS:
            continue
        for name, value in vars(importlib.import_module(module)).items():
            if not (isinstance(value, type) and issubclass(value, BaseException)):
                continue
            where = f"{value.__module__}.{name}"
            if value.__module__ == module and not issubclass(value, KineticError):
                strays += [where] if where not in NOT_OURS_TO_CATCH else []

    assert strays == [], "put it under KineticError, or say in NOT_OURS_TO_CATCH why not"


# What Kinetic keeps is made by `kinetic_payload.files.private`, or it has the modes of a umask.
MAKING = {"mkdir", "makedirs", "mkfifo", "mkstemp", "mkdtemp", "touch", "write_text", "write_bytes"}

NOT_OURS_TO_KEEP = {
    "kinetic_payload/files/atomic.py": "`NewFile`, which the user named",
    "kinetic/backends/local/launch.py": "an output folder that the user named",
    "kinetic/backends/local/limits.py": "control groups, which the kernel keeps",
    "kinetic_payload/data/bucket.py": "`Data`, for the user's function",
    "kinetic/jobs/debugging.py": "`.vscode/launch.json` of the user's project",
    "kinetic_payload/archives/extract.py": "the project and `Data`, with the modes that they had",
    "kinetic_payload/files/private.py": "",
    "kinetic_runner/data/huggingface.py": "the library's own cache",
    "kinetic_runner/data/inputs.py": "empty mount points and stages of `Data`",
    "kinetic_runner/data/mounts.py": "mount points, and files of the kernel",
    "kinetic_images/builders/dockerfile/install.py": "the files of an image, inside its build",
    "kinetic_runner/child/pipeline.py": "folders in which the user's function works",
}
"""Modules that make files in another way, and which."""


def makes(call: ast.Call) -> bool:
    """Return whether *call* makes a file or folder whose mode depends on the umask."""
    name = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
    if name in MAKING:
        return True
    given = [ast.unparse(one) for one in (*call.args, *(word.value for word in call.keywords))]
    if name != "open" or given[:1] in (["fd"], ["self.fd"], ["descriptor"]):
        return False  # A descriptor: its file is there.
    return any(
        "O_CREAT" in text or text in ("'wb'", "'w'", "'ab'", "'a'", "'xb'", "'x'") for text in given
    )


def test_files_that_are_kept_are_made_by_one_module() -> None:
    found = {
        str(path.relative_to(source))
        for source in ROOT.glob("packages/*/src")
        for path in source.rglob("*.py")
        if "testing" not in path.with_suffix("").parts
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call) and makes(node)
    }

    assert sorted(found) == sorted(NOT_OURS_TO_KEEP), "use kinetic_payload.files.private"
