"""The options of a batch, as `run_async_map` takes them."""

from __future__ import annotations

import os
import pickle
from contextlib import closing, nullcontext
from typing import Any

import pytest

from kinetic.batches.batch import Batch, BatchOptions
from kinetic.errors import InvalidRequestError, SubmitError
from kinetic_servers.fakes import a_request


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


@pytest.mark.parametrize(
    ("accelerator", "count", "pods"),
    [("cpu", 1001, ""), ("v6e-8", 1000, ""), ("v6e-8", 1001, "1,001"), ("v6e-16", 1001, "252")],
)
def test_many_inputs_on_accelerators_ask_on_a_terminal_with_the_number_of_their_pods(
    accelerator: str, count: int, pods: str
) -> None:
    request = a_request(accelerator=accelerator, backend="gke", project="p")
    batch = Batch(request, BatchOptions(), range(count), lambda args, kwargs: None)
    controller, terminal = os.openpty()
    with closing(batch.inputs), open(terminal) as stdin, open(os.dup(terminal), "w") as stderr:
        batch.inputs.pack(Call())  # type: ignore[arg-type]
        os.write(controller, b"y\nno\n")
        batch.confirm(stdin, stderr)
        with pytest.raises(SubmitError, match="was not started") if pods else nullcontext():
            batch.confirm(stdin, stderr)
        stderr.write("the end")
        stderr.flush()
        shown = b""
        while b"the end" not in shown:
            shown += os.read(controller, 4096)
    os.close(controller)
    assert (f"need {pods} pods" in shown.decode()) is bool(pods)
