"""Submit a batch: its call once, its inputs in a few objects, one manifest, one resource."""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Callable, Iterable, Mapping
from contextlib import closing, nullcontext
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final, get_args

from kinetic.batches.handle import BatchHandle
from kinetic.batches.inputs import InputMode, Inputs, checker_of
from kinetic.batches.resume import MANY, confirm, lease
from kinetic.errors import InvalidRequestError
from kinetic.names import job_id_of
from kinetic.quantities import parse_count
from kinetic.submit.submit import submit
from kinetic_payload.records.batch import GroupManifest
from kinetic_payload.records.encode import encode

if TYPE_CHECKING:
    from kinetic.backends.backend import Launch
    from kinetic.jobs.services import Services
    from kinetic.submit.request import JobRequest
    from kinetic_payload.calls.dump import DumpedCall
    from kinetic_payload.records.job import JobRecord

_RECORDED: Final = ("volumes", "timeout", "output_dir", "project", "zone", "cluster", "namespace")
"""Arguments of `kinetic.run` that the record of a batch has, or the header of its call."""
_MOST_MANIFEST: Final = 6 << 20
_RANGES: Final = 8
"""How many ranges of inputs each worker of a large batch runs, one after another: the last ones end together."""


@dataclass(kw_only=True)
class BatchOptions:
    """The arguments of `run_async_map` besides the inputs; making it checks them.

    Raises:
        InvalidRequestError: One is invalid; the hint says what to write instead.
    """

    input_mode: InputMode = "auto"
    max_concurrent: int = 64
    retries: int = 0
    fail_fast: bool = False
    cancel_running_on_fail: bool = False
    max_failures: int | None = None
    name: str | None = None
    tags: Mapping[str, str] | None = None
    common: Mapping[str, Any] | None = None
    inputs_per_pod: int | None = None

    def __post_init__(self) -> None:
        if self.input_mode not in (modes := get_args(InputMode)):
            raise InvalidRequestError(
                f"input_mode={self.input_mode!r} is not known.",
                hint=f"Write one of {', '.join(modes)}.",
            )
        for title in ("max_concurrent", "inputs_per_pod"):
            value = getattr(self, title)
            if value is None and title == "inputs_per_pod":
                continue
            if type(value) is not int or value < 1:
                raise InvalidRequestError(f"{title}={value!r} is not a number from 1.")
        if not isinstance(self.name, str | None):
            raise InvalidRequestError(f"name={self.name!r} is not text.")
        for title in ("tags", "common"):
            given = getattr(self, title)
            mapping = {} if given is None else given
            if not isinstance(mapping, Mapping) or not all(isinstance(key, str) for key in mapping):
                raise InvalidRequestError(f"{title}={mapping!r} is not a dict whose keys are text.")
            setattr(self, title, dict(mapping))
        for tag, text in (self.tags or {}).items():
            if not isinstance(text, str):
                raise InvalidRequestError(f"The tag {tag!r} is {text!r}, which is not text.")
        self.retries = parse_count("retries", self.retries)
        if self.max_failures is not None:
            self.max_failures = parse_count("max_failures", self.max_failures)
        self.cancel_running_on_fail = bool(self.cancel_running_on_fail)
        self.fail_fast = bool(self.fail_fast) or self.cancel_running_on_fail


class Batch:
    """The inputs and the options of a batch whose call is being submitted. Close its inputs at the end."""

    def __init__(
        self,
        request: JobRequest,
        options: BatchOptions,
        inputs: Iterable[Any],
        check: Callable[[tuple[Any, ...], dict[str, Any]], object],
    ) -> None:
        """Refuse what cannot run as a batch, before anything is packaged.

        Raises:
            InvalidRequestError: The hint says what to use instead.
        """
        hosts = request.accelerator.hosts
        if hosts > 1 and request.on_this_machine and request.semantics == "gke":
            raise InvalidRequestError(
                f"{request.accelerator} has {hosts} hosts, and on this machine a batch runs each input in one process.",
                hint="Choose an accelerator with one host, or submit the inputs one by one with run_async.",
            )
        if request.debug:
            raise InvalidRequestError(
                "debug=True waits for a debugger, and a batch has many members.",
                hint="Debug one input with run_async.",
            )
        self.group_id = f"grp-{secrets.token_hex(4)}"
        retries = options.retries or request.retries
        self.request = replace(request, retries=retries, batch=True)
        self.inputs = Inputs(inputs, options.input_mode, check)
        self.manifest: GroupManifest | None = None
        """Known once the batch is recorded."""
        self._options = options

    @property
    def _at_once(self) -> int:
        """How many workers run at the same time."""
        request, at_once = self.request, self._options.max_concurrent
        if not request.on_this_machine:
            return at_once
        return min(at_once, int(request.settings.local_jobs.value) or os.cpu_count() or 1)

    @property
    def _per_worker(self) -> int:
        """How many inputs a worker runs, one after another."""
        request, count, at_once = self.request, self.inputs.count, self._at_once
        # An accelerator takes longer to get than most inputs take, and pods show what each input costs.
        whole = not request.on_this_machine and (count <= MANY or request.accelerator.kind != "cpu")
        default = 1 if whole else max(1, -(-count // (_RANGES * at_once)))
        per_worker = self._options.inputs_per_pod or default
        if self._has_several_workloads:
            # All of them start at once.
            per_worker = max(per_worker, -(-count // at_once))
        return per_worker

    @property
    def _has_several_workloads(self) -> bool:
        """Whether each worker has a workload of its own."""
        request = self.request
        several = request.accelerator.multi_host or request.semantics == "pathways"
        return several and not request.on_this_machine

    def start(self, services: Services, launch: Launch) -> None:
        """Start the workers. Several workloads need a lease: another process must not take the first ones for all."""
        several = self._has_several_workloads
        with lease(self.group_id, services) if several else nullcontext():
            services.backend.start(launch)

    def pack(self, call: DumpedCall) -> None:
        """Pickle the inputs as further arguments of *call*, and ask whether to start them if they are very many."""
        self.inputs.pack(call)
        count = self.inputs.count
        confirm(self.request, count, workers=-(-count // self._per_worker), at_once=self._at_once)

    def manifest_of(self, record: JobRecord) -> GroupManifest:
        """Return the manifest of the batch, whose members share *record*."""
        options, count = self._options, self.inputs.count
        at_once, per_worker = self._at_once, self._per_worker
        # A manifest is read at once: all reasons together have at most 2 MiB.
        longest = min(1000, (2 << 20) // max(1, len(self.inputs.failed)))
        created = datetime.fromisoformat(record.created_at)
        suffix = f"{self.group_id.removeprefix('grp-')}-{count}"
        # The room for the largest index is known only now.
        slug = self.request.accelerator.slug
        members = job_id_of(slug, self.request.function_name, created, suffix)
        self.manifest = GroupManifest(
            group_id=self.group_id,
            name=options.name,
            tags=dict(options.tags or {}),
            created_at=record.created_at,
            total_expected=count,
            accelerator=record.accelerator,
            func_name=record.func_name,
            job=record,
            members=members.rpartition("-")[0],
            inputs=tuple(self.inputs.packs),
            call_data=self.inputs.call_data,
            hub_data=self.inputs.hub_data,
            failed={
                str(index): f"{type(error).__name__}: {error}"[:longest]
                for index, error in self.inputs.failed.items()
            },
            max_concurrent=at_once,
            per_worker=per_worker,
            fail_fast=options.fail_fast,
            cancel_running_on_fail=options.cancel_running_on_fail,
            max_failures=options.max_failures,
            given=json.dumps(
                {name: value for name, value in self.request.given.items() if name not in _RECORDED}
            ),
        )
        if len(encode(self.manifest)) > _MOST_MANIFEST:
            raise InvalidRequestError(
                f"The name, the tags and the other options of {self.group_id} have more than "
                f"{_MOST_MANIFEST >> 20} MiB.",
                hint="Put large values into `common`, and short ones into name and tags.",
            )
        return self.manifest


def submit_batch(
    request: JobRequest,
    function: Callable[..., Any],
    first: tuple[Any, ...],
    inputs: Iterable[Any],
    options: BatchOptions,
    *,
    services: Services | None = None,
) -> BatchHandle:
    """Start *function* for each of *inputs*, after the arguments *first*; return a handle at once.

    Raises:
        InvalidRequestError: An input is wrong, or the backend runs no such batch.
        KineticError: The batch could not be packaged or started; nothing of it is left.
    """
    common = options.common or {}
    batch = Batch(request, options, inputs, checker_of(function, first, common))
    with closing(batch.inputs):
        job = submit(batch.request, function, first, common, services=services, batch=batch)
        assert batch.manifest is not None
        return BatchHandle(
            batch.manifest, job._services, submission_errors=dict(batch.inputs.failed)
        )
