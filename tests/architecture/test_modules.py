"""What is true of every module of ours: documented, tested, of functions that can be read in one go."""

from __future__ import annotations

import ast
import importlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from kinetic.errors import KineticError

ROOT = Path(__file__).parents[2]
LONGEST_FUNCTION = 70

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
    "kinetic_payload.stores.gcs.errors.InterceptedResponseError": "goes from one part of the bucket store to another",
    "kinetic_payload.stores.gcs.errors.NotFoundError": "goes from one part of the bucket store to another",
    "kinetic_payload.stores.gcs.errors.PreconditionError": "goes from one part of the bucket store to another",
    "kinetic_payload.stores.gcs.errors.ResponseError": "goes from one part of the bucket store to another",
    "kinetic_payload.stores.gcs.errors.RetryError": "goes from one part of the bucket store to another",
    "kinetic_runner.child.stop_requests.Terminated": "SIGTERM, which user code must not catch as an Exception",
}
"""Exceptions that no user ever sees, and why they are not errors."""


def trees() -> Iterator[tuple[str, ast.Module]]:
    for module, path in SOURCES.items():
        yield module, ast.parse(path.read_text(encoding="utf-8"))


def test_every_module_begins_with_a_line_that_says_what_it_is() -> None:
    missing = [module for module, tree in trees() if not (ast.get_docstring(tree) or "").strip()]

    assert missing == []


def test_no_function_is_too_long_to_be_understood_as_one() -> None:
    functions = [
        (f"{module}:{node.lineno} {node.name}", (node.end_lineno or 0) - node.lineno + 1)
        for module, tree in trees()
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        # A signature and a docstring are read, not understood.
        if _without_head(node) > LONGEST_FUNCTION
    ]

    assert functions == []


def _without_head(node: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    body = node.body[1:] if ast.get_docstring(node) and len(node.body) > 1 else node.body
    return (node.end_lineno or 0) - body[0].lineno + 1


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
