"""`Report`: what is known of a job, as one page without secrets that may be shown to others."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final, get_args

from kinetic.job_status import JobStatus
from kinetic.jobs.pending import submitted_at
from kinetic_payload.printable import printable
from kinetic_payload.progress import duration_text
from kinetic_payload.records.host_outcome import Phase

if TYPE_CHECKING:
    from kinetic.backends.backend import LogLine
    from kinetic.jobs.outcome import JobOutcome
    from kinetic_payload.records.host_outcome import HostOutcome
    from kinetic_payload.records.job import JobRecord
    from kinetic_payload.records.usage import PendingReason, Usage

_STACK_LINES: Final = 60
_LONGEST_LINE: Final = 2000
WAITING: Final = "waiting"
"""The span before an attempt begins: for a machine, an image, or after the end of the one before."""
RUNNING: Final = "running"
"""The span of an attempt that has not ended: which phase it is in is not known."""


@dataclass(frozen=True)
class Span:
    """A part of the time of a job: a phase of an attempt, or the wait before it."""

    attempt: int
    name: str
    seconds: float
    reasons: Sequence[str] = ()
    """Of a wait: how long after the submit somebody saw which reason."""
    open: bool = False
    """Whether it has not ended."""


@dataclass(frozen=True)
class AttemptEnd:
    """How one host ended one attempt."""

    attempt: int
    host: int
    seconds: float
    ended: str
    phase: str
    exit_code: int
    message: str


@dataclass(frozen=True, kw_only=True)
class Report:
    """One page about a job. All texts are redacted."""

    job_id: str
    status: str
    message: str
    facts: Mapping[str, str]
    """By name: function, accelerator, versions and so on."""
    timeline: Sequence[Span]
    attempts: Sequence[AttemptEnd]
    failure: str
    """The host that failed first, and its exception; empty if none did."""
    stack: Sequence[str]
    log: Sequence[LogLine]
    """The last lines."""
    notes: Sequence[str]
    usage: Mapping[int, Usage]
    """What each host of the latest attempt used over time, by its number."""


def timeline_of(
    created_at: str, outcome: JobOutcome, pending: Sequence[PendingReason] = (), *, now: float
) -> tuple[Span, ...]:
    """Return the waits and the phases of each attempt that reported; its first host stands for the others.

    The last span of a job that waits, or of an attempt of which no host has reported, is open, and lasts until *now*. Any
    other wait without an attempt lasts until somebody saw its reason last.
    """
    spans: list[Span] = []
    submitted = before = submitted_at(created_at)

    def after(at: float) -> str:
        return duration_text(max(0.0, at - submitted))

    def reasons(end: float) -> list[str]:
        return [
            f"{' to '.join(dict.fromkeys(map(after, (each.first, each.last))))}: {each.text}"
            for each in pending
            if each.first <= end and each.last >= before
        ]

    running = outcome.status is JobStatus.RUNNING and max(outcome.attempts, default=0)
    for number, hosts in outcome.attempts.items():
        if not hosts and number != running:
            continue
        began = min((host.started_at for host in hosts), default=outcome.unreported.get(number, 0))
        if before and began:
            # Clocks of two machines differ a little.
            spans.append(Span(number, WAITING, max(0.0, began - before), reasons(began)))
        if not hosts:
            if began:
                spans.append(Span(number, RUNNING, max(0.0, now - began), open=True))
            break
        phases = hosts[0].phases
        order = [*get_args(Phase), *phases]
        names = sorted(phases, key=order.index)
        spans += [Span(number, name, phases[name]) for name in names]
        before = max(host.finished_at for host in hosts)
    waits = not (outcome.status.terminal or running)
    seen = now if waits else max((each.last for each in pending), default=0.0)
    if (
        before
        and before < seen
        and (outcome.final is None or not spans)
        and not (spans and spans[-1].open)
    ):
        number = spans[-1].attempt + 1 if spans else 1
        spans.append(Span(number, WAITING, seen - before, reasons(seen), open=waits))
    return tuple(spans)


def first_failure(outcome: JobOutcome) -> HostOutcome | None:
    """Return the report of the host that failed first in the last attempt that reported; None if none did."""
    last = max((host.attempt for host in outcome.hosts), default=0)
    failed = [host for host in outcome.hosts if host.attempt == last and not host.succeeded]
    # A host that lost another one ends after it, whatever the clocks of both say.
    return min(failed, key=lambda host: (bool(host.lost_peer), host.finished_at), default=None)


def cleaner_of(
    record: JobRecord, *, secrets: Mapping[str, str], home: str, people: Sequence[str | None] = ()
) -> Callable[[str], str]:
    """Return a function that removes from a text about a job what others must not see; lines stay lines.

    Args:
        record: The record of the job.
        secrets: Variables of this process; the values of those that the job captured are removed.
        home: The user's home folder, which becomes `~`.
        people: Users, besides the submitter, who are not named.
    """
    values = [secrets.get(name, "") for name in record.captured_env]
    # A log may begin within one.
    texts = [text for value in values for text in (value, *value.splitlines())]
    forms = {form.strip() for text in texts for form in (text, json.dumps(text)[1:-1])}
    # A short value, such as 1, is no secret, and would be found everywhere.
    known = sorted((form for form in forms if len(form) >= 4), key=len, reverse=True)

    def clean(text: str) -> str:
        for value in known:
            text = text.replace(value, _REMOVED + "\n" * value.count("\n"))
        # Long lines are of no use here, and slow to search.
        text = "\n".join(line[:_LONGEST_LINE] for line in text.split("\n"))
        for name in record.captured_env:
            text = re.sub(rf"({re.escape(name)}{_IS})(?:{_QUOTED}|\S+)", rf"\1{_REMOVED}", text)
        for who in filter(None, (record.submitter, *people)):
            text = text.replace(f" by {who}", "")
        if len(home) > 1:
            text = text.replace(home, "~")
        return printable(redacted(text))

    return clean


def clean_log(lines: Sequence[LogLine], clean: Callable[[str], str]) -> list[LogLine]:
    """Return *lines*, cleaned as one text: a private key has several."""
    texts = clean("\n".join(line.text for line in lines)).split("\n")
    return [replace(line, text=text) for line, text in zip(lines, texts, strict=False)]


def report_of(
    record: JobRecord,
    outcome: JobOutcome,
    log: Sequence[LogLine],
    usage: Mapping[int, Usage],
    *,
    pending: Sequence[PendingReason] = (),
    notes: Sequence[str] = (),
    secrets: Mapping[str, str] = {},
    home: str = "",
    now: float,
) -> Report:
    """Return the report of a job.

    Args:
        record: Its record.
        outcome: Its status, and how its hosts ended.
        log: The last lines of its log.
        usage: What its hosts used.
        pending: Why it waited.
        notes: What the reader must know, such as that it was cleaned up.
        secrets: Variables of this process, as for `cleaner_of`.
        home: The user's home folder.
        now: The time, until which it waits or runs if it has not ended.
    """
    final = outcome.final
    people = (final.cancelled_by,) if final else ()
    clean = cleaner_of(record, secrets=secrets, home=home, people=people)
    failed = None if outcome.status.value == "SUCCEEDED" else first_failure(outcome)
    error = failed.error if failed else None
    facts = {
        "function": record.func_name,
        "accelerator": record.accelerator + (" spot" if record.spot else ""),
        "hosts": str(record.hosts),
        "backend": record.backend,
        "batch": record.group_id or "",
        "image": record.image_uri,
        "submitted": record.created_at,
        "ended": (
            datetime.fromtimestamp(final.written_at, UTC).isoformat(timespec="seconds")
            if final and final.written_at
            else ""
        ),
        "client": record.client,
        "python": next((host.python for host in outcome.hosts if host.python), ""),
        "retries": str(record.retries),
        "time limit": "" if record.timeout is None else f"{record.timeout:g} s",
        "captured": ", ".join(record.captured_env),
        "devices": next((host.devices_seen for host in outcome.hosts if host.devices_seen), ""),
    }
    return Report(
        job_id=record.job_id,
        status="CANCELLED" if final and final.status == "cancelled" else outcome.status.value,
        message=clean(outcome.message),
        facts={name: clean(text) for name, text in facts.items() if text},
        timeline=timeline_of(
            record.created_at,
            outcome,
            [replace(each, text=clean(each.text)) for each in pending],
            now=now,
        ),
        attempts=[
            AttemptEnd(
                host.attempt,
                host.host,
                max(0.0, host.finished_at - host.started_at),
                host.reason,
                host.phase,
                host.exit_code,
                clean(host.message),
            )
            for host in outcome.hosts
        ],
        failure=clean(
            f"host {failed.host} of attempt {failed.attempt}: "
            + (f"{error.type}: {error.message}" if error else failed.message)
            if failed
            else ""
        ),
        stack=clean(error.traceback).splitlines()[-_STACK_LINES:] if error else (),
        log=clean_log(log, clean),
        notes=[
            *dict.fromkeys(
                map(clean, (*notes, *(each for host in outcome.hosts for each in host.warnings)))
            ),
        ],
        usage=usage,
    )


_REMOVED: Final = "[removed]"
_IS: Final = r"['\"\]\\]*\s*[=:]\s*"
"""What is between a name and its value: in a shell, Python, JSON, a header."""
_QUOTED: Final = r"""\\*(?:"(?:\\.|[^"\\\n])*"?|'(?:\\.|[^'\\\n])*'?)"""
_KEYS: Final = r"(?:token|secret|password|passwd|passphrase|credential|(?:api|access|private)[_-]?key)[\w-]{0,64}"
_REDACTIONS: Final[tuple[tuple[str, str | Callable[[re.Match[str]], str]], ...]] = (
    (r"\x1b\[[0-9;:]*m", ""),
    (
        r"-----BEGIN [A-Z ]*PRIVATE KEY[A-Z ]*-----[\s\S]*?(?:-----END [A-Z ]*PRIVATE KEY[A-Z ]*-----|\Z)",
        lambda found: _REMOVED + "\n" * found[0].count("\n"),
    ),
    # The log may begin within one.
    (
        r"\A[\s\S]*-----END [A-Z ]*PRIVATE KEY[A-Z ]*-----",
        lambda found: _REMOVED + "\n" * found[0].count("\n"),
    ),
    (r"(?i)(\b(?:bearer|basic|authorization\W{1,4}token)\s+)[\w.~+/=-]{8,}", rf"\1{_REMOVED}"),
    # Here and below, a word is read once, whether it has what is looked for or not: a log is to be cleaned soon.
    (
        r"(\w://)([^\s/:@]*:)([^\s'\"]*)",
        lambda url: (
            url[1]
            + (f"{_REMOVED}@{url[3].rpartition('@')[2]}" if "@" in url[3] else url[2] + url[3])
        ),
    ),
    (
        rf"(?i)({_KEYS}{_IS}|--(?=\w)[\w-]{{0,64}}{_KEYS}\s+)(?:{_QUOTED}|[^\s'\",;&]+)",
        rf"\1{_REMOVED}",
    ),
    (
        r"\b(?:gh[pousr]_|github_pat_|glpat-|hf_|sk-|xox[abpr]-|AKIA|AIza|ya29\.|eyJ)[\w.-]{12,}",
        _REMOVED,
    ),
    # What a `gs://` or another URI names inside a bucket stays a name; its query may carry a signature.
    (
        r"(\w://[^\s?'\"]+)(\?[^\s'\"]+)?",
        lambda url: url[1] + (f"?{_REMOVED}" if url[2] else ""),
    ),
    (r"(?<![\w.+-])[\w.+-]{1,64}@[\w-]+(?:\.[\w-]+)+", "[e-mail]"),
    (r"(?:/home|/Users)/[^/\s:'\"]+", "~"),
    (r"(?<![\w.~-])/root(?=[/\s:'\"]|\Z)", "~"),
)
"""Patterns of what a report must not have, and what stands in its place."""


def redacted(text: str) -> str:
    """Return *text* without tokens and passwords of known forms, e-mail addresses and home folders."""
    for pattern, instead in _REDACTIONS:
        text = re.sub(pattern, instead, text)
    return text
