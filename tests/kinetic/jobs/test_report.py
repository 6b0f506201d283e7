"""A report: what it shows, and what it never shows."""

from __future__ import annotations

from dataclasses import replace
from itertools import count
from time import process_time

import pytest

from kinetic.backends.backend import LogLine
from kinetic.job_status import JobStatus
from kinetic.jobs.outcome import JobOutcome
from kinetic.jobs.pending import PendingNotes, note_reasons, read_reasons
from kinetic.jobs.report import clean_log, cleaner_of, redacted, report_of, timeline_of
from kinetic_payload.records.host_outcome import ErrorInfo, HostOutcome, Pickled
from kinetic_payload.records.outcome import Outcome
from kinetic_payload.records.usage import PendingReason
from kinetic_servers.fakes import FakeServices, FakeStore

SECRET = "s3cr3t-value"


def a_host(attempt: int, host: int, began: float, **more: object) -> HostOutcome:
    given = {"succeeded": False, "reason": "exception", "phase": "call", "exit_code": 1, **more}
    return HostOutcome(
        job_id="j", attempt=attempt, host=host, started_at=began, finished_at=began + 5, **given
    )


def test_a_report_has_the_timeline_the_first_failing_host_and_its_stack() -> None:
    error = ErrorInfo("ValueError", "nan", "Traceback\nValueError: nan\n")
    hosts = (
        a_host(1, 0, 1010, reason="terminated", phases={"call": 4.0, "fetch": 1.0}),
        a_host(2, 0, 1030, lost_peer=True, phases={"call": 5.0}),
        a_host(2, 1, 1031, error=error, phases={"call": 5.0}),
    )
    final = Outcome(job_id="j", status="failed", attempt=2, host=1, message="ValueError: nan")
    record = replace(FakeServices.make().job(), created_at="1970-01-01T00:16:40+00:00", hosts=2)

    pending = (
        PendingReason("No node.", 1004, 1008),
        PendingReason(f"Preempted on {SECRET}@host.io.", 1016, 1016),
    )
    known = JobOutcome("j", JobStatus.FAILED, "", final, hosts)

    report = report_of(record, known, [LogLine("last")], {}, pending=pending, now=2000.0)

    spans = [(span.attempt, span.name, span.seconds) for span in report.timeline]
    assert spans == [
        (1, "waiting", 10.0), (1, "fetch", 1.0), (1, "call", 4.0), (2, "waiting", 15.0), (2, "call", 5.0),
    ]  # fmt: skip
    waits = [span.reasons for span in report.timeline if span.name == "waiting"]
    assert waits == [["4s to 8s: No node."], ["16s: Preempted on [e-mail]."]]
    assert report.failure == "host 1 of attempt 2: ValueError: nan"
    assert (report.stack, report.log) == (["Traceback", "ValueError: nan"], [LogLine("last")])


CANCELLED = Outcome(job_id="j", status="cancelled")


@pytest.mark.parametrize(
    ("status", "hosts", "unreported", "final", "expected"),
    [
        (JobStatus.PENDING, (), {}, None, [(1, "waiting", 100, True)]),
        (JobStatus.RUNNING, (), {}, None, [(1, "waiting", 100, True)]),
        (
            JobStatus.RUNNING, (), {1: 1010.0}, None,
            [(1, "waiting", 10, False), (1, "running", 90, True)],
        ),
        (JobStatus.RUNNING, (), {1: 0.0}, None, [(1, "waiting", 90, False)]),
        (
            JobStatus.RUNNING, (a_host(1, 0, 1010, phases={"call": 5.0}),), {2: 1030.0}, None,
            [
                (1, "waiting", 10, False), (1, "call", 5, False),
                (2, "waiting", 15, False), (2, "running", 70, True),
            ],
        ),
        (
            JobStatus.RUNNING, (a_host(1, 0, 1010, phases={"call": 5.0}),), {}, None,
            [(1, "waiting", 10, False), (1, "call", 5, False), (2, "waiting", 75, False)],
        ),
        (
            JobStatus.PENDING, (a_host(1, 0, 1010, phases={"call": 5.0}),), {}, None,
            [(1, "waiting", 10, False), (1, "call", 5, False), (2, "waiting", 85, True)],
        ),
        (JobStatus.FAILED, (), {}, CANCELLED, [(1, "waiting", 90, False)]),
    ],
)  # fmt: skip
def test_the_last_span_of_a_job_that_has_not_ended_is_open(
    status: JobStatus,
    hosts: tuple[HostOutcome, ...],
    unreported: dict[int, float],
    final: Outcome | None,
    expected: list[tuple[int, str, float, bool]],
) -> None:
    known = JobOutcome("j", status, "", final, hosts, unreported)
    reasons = [PendingReason("Full.", 1004, 1090)]

    spans = timeline_of("1970-01-01T00:16:40+00:00", known, reasons, now=1100.0)

    assert [(span.attempt, span.name, span.seconds, span.open) for span in spans] == expected
    if expected[0][2] >= 90:
        assert list(spans[0].reasons) == ["4s to 1m 30s: Full."]


def test_reasons_of_a_wait_are_few_and_written_rarely() -> None:
    store, times = FakeStore(), count(100.0, 5.0)
    job_id = "cpu-fit-20260101-000000-0123456"
    notes = PendingNotes(store, job_id, clock=lambda: next(times))
    for number in range(60):  # Every 5 s: within 10 s of the first, nothing is written.
        notes.saw(f"{number} jobs are before it.")
    notes.saw("It is about to start.")
    notes.over()

    assert len(store.journal.of("write *")) == 3
    assert [(each.text, each.first, each.last) for each in read_reasons(store, job_id)] == [
        ("59 jobs are before it.", 105.0, 400.0),
        ("It is about to start.", 405.0, 410.0),
    ]
    note_reasons(store, job_id, [(f"Reason {'x' * n}", n, n) for n in range(20)])
    assert len(read_reasons(store, job_id)) == 8


def test_a_report_shows_no_secret_wherever_it_stands() -> None:
    text = (
        f"key {SECRET} of ada@example.com in /Users/ada/x and /mnt/me/x, WANDB_KEY='an other-value'"
    )
    error = ErrorInfo("E", text, f"Traceback\n{text}", (text,), Pickled(9, "0" * 64, "c2VjcmV0"))
    host = a_host(1, 0, 1.0, error=error, message=text, warnings=(text,), value_repr="the value")
    final = Outcome(job_id="j", status="cancelled", message=text, cancelled_by="ada.laptop")
    record = replace(
        FakeServices.make().job(),
        captured_env=("WANDB_KEY",),
        submitter="ada.laptop",
        labels={"owner": "ada"},
    )
    outcome = JobOutcome("j", JobStatus.FAILED, f"{text} by ada.laptop.", final, (host,))

    report = report_of(
        record,
        outcome,
        [*map(LogLine, (f"\a\x1b[31m{text}", f"{'.' * 1995} {SECRET}", '"{\\"last line\\": 1}"'))],
        {},
        secrets={"WANDB_KEY": f'{SECRET}\n{{"last line": 1}}'},
        home="/mnt/me",
        notes=(text,),
        now=2.0,
    )

    shown = repr(report)
    for hidden in (
        SECRET,
        "ada",
        "example.com",
        "/mnt/me",
        "other-value",
        "s3c",
        "last line",
        "c2Vj",
        "the value",
    ):
        assert hidden not in shown
    assert "in ~/x and ~/x" in report.log[0].text
    assert report.log[0].text.startswith("\\x07key [removed] of [e-mail]")
    assert "WANDB_KEY" in report.facts["captured"]


@pytest.mark.parametrize(
    "text",
    [
        "Authorization: Bearer abcdef123456", "https://me:secret-1@host/x", "HF_TOKEN='hf_secret-1'",
        "ghp_0123456789abcdef0123", "-----BEGIN PRIVATE KEY-----\nsecret-1\n-----END PRIVATE KEY-----",
        "secret-1\n-----END PRIVATE KEY-----", "gs://b/o?X-Goog-Signature=secret-1", '{"password": "secret-1"}',
        'password = "my secret-1"', r'"{\"api-key\": \"my secret-1\"}"', "environ['MY_TOKEN'] = 'my secret-1'",
        "run --password secret-1", "redis://:secret-1@host", "db://me:p@a/secret-1@host",
    ],
)  # fmt: skip
def test_tokens_of_known_forms_are_removed(text: str) -> None:
    assert "[removed]" in redacted(text)
    assert not {"secret-1", "abcdef123456", "0123456789abcdef0123"} & set(
        redacted(text).replace("'", " ").split()
    )
    assert "secret-1" not in redacted(text)


def test_a_text_that_looks_like_addresses_everywhere_is_read_once() -> None:
    began = process_time()
    for text in ("a://:" * 20_000, "a://" * 20_000):
        assert redacted(text) == text
    assert process_time() - began < 10


def test_lines_of_a_log_keep_their_streams_where_a_key_of_several_lines_is_removed() -> None:
    key = ["-----BEGIN PRIVATE KEY-----", "secret-1", "-----END PRIVATE KEY-----"]
    lines = [LogLine("a"), *(LogLine(text, stream="stderr") for text in key), LogLine("b")]
    clean = cleaner_of(FakeServices.make().job(), secrets={}, home="")

    cleaned = [(line.stream, line.text) for line in clean_log(lines, clean)]

    removed = [("stderr", "[removed]"), ("stderr", ""), ("stderr", "")]
    assert cleaned == [("stdout", "a"), *removed, ("stdout", "b")]
