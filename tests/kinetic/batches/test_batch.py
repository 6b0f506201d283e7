"""The options of a batch, as `run_async_map` takes them."""

from __future__ import annotations

import os
import pickle
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext
from typing import Any

import pytest

from kinetic.batches.batch import Batch, BatchOptions
from kinetic.batches.handle import BatchHandle
from kinetic.errors import InvalidRequestError, JobNotFoundError, SubmitError
from kinetic_payload.layout import JobObjects
from kinetic_payload.records.batch import GroupManifest
from kinetic_payload.records.encode import encode
from kinetic_servers.fakes import FakeServices, a_record, a_request


@pytest.mark.parametrize(
    ("option", "values"),
    [
        ("input_mode", ["", "kw", None]),
        ("max_concurrent", [0, -1, 1.5, True, "4"]),
        ("inputs_per_pod", [0, -1, 1.5, True, "4"]),
        ("retries", [-1, 1.5, None, "1"]),
        ("max_failures", [-1, 1.5, "1"]),
        ("name", [1, b"x"]),
        ("tags", [{"a": 1}, {"a": None}, {1: "a"}]),
        ("common", [{1: 2}]),
    ],
)
def test_a_wrong_option_is_refused_by_its_name(option: str, values: list[Any]) -> None:
    for value in values:
        with pytest.raises(InvalidRequestError, match=option.removesuffix("s")):
            BatchOptions(**{option: value})


def test_stopping_what_runs_includes_starting_nothing_more() -> None:
    assert not BatchOptions().fail_fast
    assert BatchOptions(cancel_running_on_fail=True).fail_fast


class Call:
    data = ()

    def dump_input(self, name: str, *arguments: Any) -> tuple[bytes, tuple[str, ...]]:
        return pickle.dumps(arguments), ()


Answers = Callable[..., AbstractContextManager[list[str]]]


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Answers:
    """Return what answers on a terminal in its block; afterwards its list has what was shown."""

    @contextmanager
    def answering(*answers: str) -> Iterator[list[str]]:
        controller, terminal = os.openpty()
        os.write(controller, "".join(f"{each}\n" for each in answers).encode())
        found = list[str]()
        with open(terminal) as stdin, open(os.dup(terminal), "w") as stderr:
            with monkeypatch.context() as patch:
                patch.setattr(sys, "stdin", stdin)
                patch.setattr(sys, "stderr", stderr)
                yield found
            stderr.write("the end")
            stderr.flush()
            shown = b""
            while b"the end" not in shown:
                shown += os.read(controller, 4096)
        os.close(controller)
        found.append(shown.decode())

    return answering


@pytest.mark.parametrize(
    ("accelerator", "count", "pods"),
    [("cpu", 1001, ""), ("v6e-8", 1000, ""), ("v6e-8", 1001, "1,001"), ("v6e-16", 1001, "252")],
)
def test_many_inputs_on_accelerators_ask_on_a_terminal_with_the_number_of_their_pods(
    terminal: Answers, accelerator: str, count: int, pods: str
) -> None:
    request = a_request(accelerator=accelerator, backend="gke", project="p")

    def submit() -> None:
        batch = Batch(request, BatchOptions(), range(count), lambda args, kwargs: None)
        with closing(batch.inputs):
            batch.pack(Call())  # type: ignore[arg-type]

    with terminal("y", "no") as shown:
        submit()
        with pytest.raises(SubmitError, match="was not started") if pods else nullcontext():
            submit()
    assert (f"need {pods} pods" in shown[0]) is bool(pods)


def test_many_inputs_that_are_started_again_ask_too(terminal: Answers) -> None:
    services = FakeServices.make()
    job = a_record(
        job_id="grp-00000001",
        accelerator="v6e-8",
        backend="gke",
        project="p",
        output_dir="gs://b/out/",
    )
    manifest = GroupManifest(
        group_id=job.job_id, tags={}, created_at=job.created_at, total_expected=1001,
        accelerator="v6e-8", func_name="f", job=job, given='{"accelerator": "v6e-8"}', members="v6e-8-f-20260417-153012-00000001",
    )  # fmt: skip
    assert manifest.member(3).output_dir == "gs://b/out/3"
    services.store.write(JobObjects(job.job_id).handle, encode(manifest))
    batch = BatchHandle(manifest, services)

    with terminal("no") as shown:
        with pytest.raises(SubmitError, match="was not started"):
            batch.retry_failed()
        with pytest.raises(JobNotFoundError, match="cleaned up"):
            batch.retry_failed(assume_yes=True)
    assert "1,001 inputs on v6e-8 need 1,001 pods, for up to 64 workers" in shown[0]
