"""`GroupManifest`: the record of a batch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field, fields, replace
from typing import Any, Literal

from kinetic_payload.frozen import frozen
from kinetic_payload.layout import WIRE_VERSION
from kinetic_payload.records.job import JobRecord
from kinetic_payload.records.outcome import FinalStatus

Step = Literal["go on", "stop", "drain", "end"]
"""What follows for a batch; see `GroupManifest.next_step`."""


@frozen(kw_only=True)
class InputPack:
    """An object with the pickles of inputs that follow one another."""

    first: int
    """The index of its first input."""
    count: int
    head: int
    """Bytes of its first line, which has the size and the digest of each pickle."""
    digest: str
    """Of that line."""


@frozen(kw_only=True)
class GroupManifest:
    """A batch: all that another process needs to continue it. It is written once."""

    group_id: str
    name: str | None = None
    tags: dict[str, str]
    created_at: str
    total_expected: int
    """The number of inputs, with those that could not be submitted."""
    accelerator: str
    func_name: str
    job: JobRecord | None = None
    """See `job_record`. A reader refuses a manifest without it."""
    members: str = ""
    """The beginning of their ids; a dash and the index follow."""
    inputs: tuple[InputPack, ...] = ()
    call_data: int = 0
    """How many references in the header of the call belong to all inputs; further ones belong to some."""
    hub_data: tuple[str, ...] = ()
    """The keys of data of the Hub that belong to all inputs: one worker loads them for all."""
    failed: dict[str, str] = field(default_factory=dict)
    """By index, inputs that could not be submitted, and why."""
    max_concurrent: int = 64
    per_worker: int = 1
    """How many inputs a worker runs, one after another."""
    fail_fast: bool = False
    cancel_running_on_fail: bool = False
    max_failures: int | None = None
    given: str = "{}"
    """The arguments of `kinetic.run` as JSON; those that the record has are left out."""
    signature: str | None = None
    version: int = WIRE_VERSION

    @property
    def job_record(self) -> JobRecord:
        """The record that its members share, with the id of the group."""
        assert self.job is not None
        return self.job

    @property
    def workers(self) -> int:
        """The number of workers, one after another or at the same time."""
        return -(-self.total_expected // self.per_worker)

    def next_step(
        self, stopped: FinalStatus | None, *, failed: int = 0, running: bool = False
    ) -> Step:
        """Decide what follows from what one of its workers or clients sees of a batch.

        Nothing else decides when a batch stops. With `go on`, the next input starts. `stop`: write the outcome of the
        batch, which all of them see. `drain`: let what runs end, and start nothing else. `end`: stop what runs, and
        remove the workers that are left.

        Args:
            stopped: The status of the batch's own outcome; None while it has none.
            failed: How many inputs have failed, with those that could not be submitted.
            running: Whether an input runs: on this worker, or of a client's view, on any.
        """
        if stopped is None:
            most = 0 if self.fail_fast else self.max_failures
            return "go on" if most is None or failed <= most else "stop"
        if running and stopped == "failed" and not self.cancel_running_on_fail:
            return "drain"
        return "end"

    def job_id(self, index: int) -> str:
        """Return the id of the member that has the input *index*."""
        return f"{self.members}-{index}"

    def member(self, index: int) -> JobRecord:
        """Return the record of the member that has the input *index*."""
        folder = self.job_record.output_dir
        return replace(
            self.job_record,
            job_id=self.job_id(index),
            group_id=self.group_id,
            group_kind="map",
            group_index=index,
            output_dir=None if folder is None else f"{folder.rstrip('/')}/{index}",
        )


def manifest_from(values: Mapping[str, Any], record: JobRecord) -> GroupManifest:
    """Rebuild the manifest of a batch from the fields of its JSON and the *record* in it, unchecked."""
    known = {each.name for each in fields(GroupManifest)}
    packs = tuple(InputPack(**pack) for pack in values["inputs"])
    own = {name: value for name, value in values.items() if name in known}
    hub_data = tuple(values.get("hub_data", ()))
    return GroupManifest(**{**own, "job": record, "inputs": packs, "hub_data": hub_data})
