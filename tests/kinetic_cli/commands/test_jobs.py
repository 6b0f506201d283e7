"""`kinetic jobs …` with stub handles: what is passed to a handle, and what is printed."""

from __future__ import annotations

import json
import os
import pickle
from collections.abc import Callable
from html import escape
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

from kinetic.backends.backend import LogLine
from kinetic.errors import (
    ResultUnreadableError,
    SignatureError,
    StoreError,
)
from kinetic.job_status import JobStatus
from kinetic.jobs.outcome import JobOutcome
from kinetic.jobs.report import AttemptEnd, Report, Span
from kinetic_cli.app import App
from kinetic_payload.records.host_outcome import ErrorInfo, HostOutcome
from kinetic_payload.records.job import JobRecord
from kinetic_payload.records.outcome import FinalStatus, Outcome
from kinetic_servers.stub_jobs import NOW, StubApp, StubJob, a_job, run

Jobs = Callable[..., Result]


@pytest.fixture
def jobs(tmp_path: Path) -> Jobs:
    """Return what runs `kinetic jobs ARGUMENTS` where the given jobs exist."""

    def call(*args: str | Path, among: tuple[StubJob, ...] = (), app: App | None = None) -> Result:
        given = map(str, args)
        return run("jobs", *given, home=tmp_path / "home", app=app or StubApp(*among))

    return call


def ended(status: FinalStatus, **more: Any) -> JobOutcome:
    succeeded = status == "succeeded"
    host = HostOutcome(
        job_id="j",
        attempt=1,
        host=0,
        succeeded=succeeded,
        reason="returned" if succeeded else "exception",
        phase="call",
        exit_code=0 if succeeded else 1,
        **more,
    )
    final = Outcome(job_id="j", status=status, attempt=1, host=0)
    state = JobStatus.SUCCEEDED if succeeded else JobStatus.FAILED
    return JobOutcome("j", state, host.message, final, (host,))


# list, status, logs


def test_list_prints_a_table(jobs: Jobs) -> None:
    among = (a_job("j-new", state=JobStatus.PENDING), a_job("j-old", func_name="[b]f[/b]"))

    assert [line.split() for line in jobs("list", among=among).stdout.splitlines()] == [
        ["JOB", "ID", "STATUS", "AGE", "DURATION", "FUNCTION", "ACCELERATOR", "BACKEND"],
        ["j-new", "PENDING", "5m", "-", "train", "v5litepod-4", "local"],
        ["j-old", "RUNNING", "5m", "-", "[b]f[/b]", "v5litepod-4", "local"],
    ]
    assert jobs("list").stdout == ""


def test_a_job_that_cannot_be_read_or_verified_does_not_hide_the_others(jobs: Jobs) -> None:
    refused = SignatureError("It is not signed.", hint="Copy the key.")
    unverified = [a_job(name, raises=refused) for name in "ab"]
    broken = a_job("broken", raises=StoreError("disk on fire"))

    ran = jobs("list", "--json", among=(broken, *unverified, a_job("well")))

    status = [job["status"] for job in json.loads(ran.stdout)]
    assert status == [None, "UNVERIFIED", "UNVERIFIED", "RUNNING"]
    assert "disk on fire" in ran.stderr
    assert "Warning: 2 jobs are UNVERIFIED. It is not signed.\nCopy the key.\n" in ran.stderr
    assert ran.stderr.count("It is not signed.") == 1
    assert ran.exit_code == 0


def test_costs_count_the_attempts_of_jobs_and_say_what_is_not_known(
    jobs: Jobs, tmp_path: Path
) -> None:
    begun = NOW - 36_000
    written = {
        # Preempted after an hour; half an hour later it ran for half an hour.
        "preempted": {"1/host-0.claim": 0, "1/host-1.json": 3600, "2/host-0.claim": 5400}
        | {"2/host-0.json": 7200},
        # An outcome ends no attempt.
        "running": {"1/host-0.claim": 34_200, "../outcome.json": 34_300},
        "half": {"1/host-0.claim": 0, "1/host-1.claim": 60, "1/host-0.json": 3600},
        "lost": {"1/host-0.claim": 0, "2/host-0.claim": 3600, "2/host-0.json": 7200},
        "cpu": {"1/host-0.claim": 0, "1/host-0.json": 7200},
        "collected": {},
        "waiting": {},
    }
    regions = {"us-central1": 2.7, "europe-west4": 3}
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "prices.json").write_text(json.dumps({"TpuV6e": regions}))
    among = [a_job("here")]
    for name, objects in written.items():
        for place, seconds in objects.items():
            file = Path(os.path.normpath(tmp_path / "store" / name / "attempts" / place))
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(b"{}")
            os.utime(file, (begun + seconds, begun + seconds))
        accelerator = "cpu" if name == "cpu" else "v6e-8"
        states = {"running": JobStatus.RUNNING, "waiting": JobStatus.PENDING}
        job = a_job(
            name, backend="gke", accelerator=accelerator, bucket_name=str(tmp_path / "store")
        )
        if name == "preempted":
            job.zone = "europe-west4-a"
        job.state = states.get(name, JobStatus.FAILED)
        who = None if name == "cpu" else "ada.laptop"
        job._session.record = JobRecord(**job.to_dict(), submitter=who)
        among.append(job)

    ran = jobs("list", "--cost", among=tuple(among))

    found = {line.split()[0]: line.split()[1:] for line in ran.stdout.splitlines() if line}
    assert found["preempted"] == ["FAILED", "v6e-8", "2", "12.00", "$36.00"]
    assert found["running"] == ["RUNNING", "v6e-8", "1", "≥0.00", "≥$0.00"]
    assert found["half"] == ["FAILED", "v6e-8", "1", "≥0.00", "≥$0.00"]
    assert found["lost"] == ["FAILED", "v6e-8", "2", "≥8.00", "≥$21.60"]
    assert found["collected"] == ["FAILED", "v6e-8", "0", "unknown", "unknown"]
    assert found["waiting"] == ["PENDING", "v6e-8", "0", "0.00", "$0.00"]
    assert found["cpu"] == ["FAILED", "cpu", "1", "2.00", "unknown"]
    assert found["ada.laptop"] == ["6", "6", "≥20.00", "≥$57.60"]
    assert found["not"] == ["known", "1", "1", "2.00", "unknown"]
    assert "here" not in found
    document = json.loads(jobs("list", "--cost", "--json", among=tuple(among)).stdout)
    assert {job["job_id"]: job["cost_usd"] for job in document}["preempted"] == 36
    assert {job["job_id"]: job["cost_complete"] for job in document}["lost"] is False


@pytest.mark.parametrize(
    ("options", "where", "cluster"),
    [
        ([], None, None),
        (["--local"], "local", None),
        (["--cluster"], "gke", None),
        (["--cluster", "--json"], "gke", None),
        (["--cluster", "big"], "gke", "big"),
        (["--cluster=big"], "gke", "big"),
    ],
)
def test_list_looks_on_this_machine_or_on_a_cluster(
    jobs: Jobs, options: list[str], where: str | None, cluster: str | None
) -> None:
    app = StubApp()

    jobs("list", *options, app=app)

    assert (app.asked, app.target.get("cluster")) == (where, cluster)


def test_status_prints_the_reason_and_the_report_of_each_host(jobs: Jobs) -> None:
    ran = jobs("status", "j", among=(a_job(reported=ended("failed", message="ValueError: nan")),))

    lines = ran.stdout.splitlines()
    assert lines[0].split() == ["status", "FAILED"]
    assert lines[1].split(maxsplit=1) == ["why", "ValueError: nan"]
    assert lines[-1].split(maxsplit=5) == ["1", "0", "exception", "call", "1", "ValueError: nan"]
    assert ran.exit_code == 0


def test_status_as_json_has_the_exception(jobs: Jobs) -> None:
    fields = {"type": "builtins.ValueError", "message": "nan", "traceback": "Traceback …"}
    job = a_job(reported=ended("failed", error=ErrorInfo(**fields)))

    document = json.loads(jobs("status", "j", "--json", among=(job,)).stdout)

    assert set(document) == {"job_id", "status", "message", "age_seconds", "handle", "hosts"}
    assert document["handle"]["accelerator"] == "v5litepod-4"
    assert document["hosts"][0]["error"] == fields


def test_a_report_as_html_loads_nothing_and_escapes_everything(jobs: Jobs, tmp_path: Path) -> None:
    hostile = "<script src='https://x'>\"&"

    class ReportingApp(StubApp):
        def report(self, job_id: str) -> Report:
            end = AttemptEnd(1, 0, 1.0, "exception", "call", 1, hostile)
            return Report(
                job_id=job_id, status="FAILED", message=hostile, facts={hostile: hostile},
                timeline=[Span(1, "waiting", 4.0), Span(1, "call", 1.0)], attempts=[end],
                failure=hostile, stack=[hostile], log=[LogLine(hostile)], notes=[hostile],
                usage={},
            )  # fmt: skip

    ran = jobs("report", "j", "--html", tmp_path / "page.html", app=ReportingApp())
    page = (tmp_path / "page.html").read_text()

    assert (ran.exit_code, ran.stdout) == (0, "")
    assert "<script" not in page
    assert page.count(escape(hostile)) == 8
    assert "default-src 'none'" in page
    assert "width:80.0%" in page
    assert "width:20.0%" in page
    assert jobs("report", "j", "--html", tmp_path / "page.html", app=ReportingApp()).exit_code == 2


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ([], {"follow": False, "tail": None, "attempt": None}),
        (["-f", "--attempt", "all"], {"follow": True, "tail": None, "attempt": "all"}),
        (["--follow", "--tail", "5"], {"follow": True, "tail": 5, "attempt": None}),
        (["-n", "0", "--attempt", "2"], {"follow": False, "tail": 0, "attempt": 2}),
    ],
)
def test_logs_passes_its_options_on_and_prints_lines_unchanged(
    jobs: Jobs, options: list[str], expected: dict[str, Any]
) -> None:
    lines = [LogLine("[info] 1/2"), LogLine("[/path] \x1b[31mred\x1b[0m"), LogLine("")]
    job = a_job(lines=lines)

    ran = jobs("logs", "j", *options, among=(job,))

    assert job.calls == [("log_lines", expected)]
    whole = "[info] 1/2\n[/path] \x1b[31mred\x1b[0m\n\n"
    assert ran.stdout == ("" if expected["tail"] == 0 else whole)


def test_logs_as_json_are_one_document_a_line(jobs: Jobs) -> None:
    lines = [LogLine("a\u2028b", host=0), LogLine("c", host=1, attempt=2, stream="stderr")]

    ran = jobs("logs", "j", "--json", among=(a_job(lines=lines),))

    assert [json.loads(line) for line in ran.stdout.split("\n")[:-1]] == [
        {"host": 0, "attempt": 1, "stream": "stdout", "text": "a\u2028b"},
        {"host": 1, "attempt": 2, "stream": "stderr", "text": "c"},
    ]


# result


class BrokenRepr:
    def __repr__(self) -> str:
        raise RuntimeError("no")


@pytest.mark.parametrize(
    ("value", "printed"),
    [
        (0.5, "0.5\n"),
        ("two\nlines", "two\nlines\n"),
        (None, "None\n"),
        ({"a": [1]}, "{'a': [1]}\n"),
        (BrokenRepr(), "<BrokenRepr whose repr fails>\n"),
    ],
)
def test_result_prints_only_the_value_on_stdout(jobs: Jobs, value: object, printed: str) -> None:
    ran = jobs("result", "j", among=(a_job(value=value),))

    assert (ran.exit_code, ran.stdout) == (0, printed)
    assert "j is RUNNING" in ran.stderr


@pytest.mark.parametrize(
    ("options", "timeout", "removal"),
    [
        ([], None, (180.0, 2.0)),
        (["--cleanup", "--timeout", "1.5"], 1.5, (180.0, 2.0)),
        (["--cleanup-timeout", "9", "--cleanup-poll-interval", "0.5"], None, (9.0, 0.5)),
    ],
)
def test_result_passes_its_options_on_and_removes_the_job_after_it_printed(
    jobs: Jobs, options: list[str], timeout: float | None, removal: tuple[float, float]
) -> None:
    job = a_job()

    ran = jobs("result", "j", *options, among=(job,))

    assert job.calls == [
        ("result", {"timeout": timeout, "cleanup": False}),
        ("cleanup", {"cleanup_timeout": removal[0], "cleanup_poll_interval": removal[1]}),
    ]
    assert ran.stderr.endswith("Removed j.\n")


class Loss(float):
    pass


WHOLE = ["a", {"b": None}, [0.5, True, -3]]
LOSSY: list[Any] = [
    *(float("nan"), Path("x"), {"a": Loss(0.5)}, "x" * 10 + "\ud800", 10**5000, [Ellipsis]),
]


@pytest.mark.parametrize(
    ("value", "options", "removed"),
    [
        *((value, [], True) for value in (*WHOLE, (1, {2: b"x"}), {3, 4})),
        *((value, ["--json"], True) for value in WHOLE),
        *((value, [], False) for value in (*LOSSY, ["x" * 1_000_000])),
        *((value, ["--json"], False) for value in (*LOSSY, (1, 2), {1: 2}, b"x", [{"a": (1,)}])),
        (Path("x"), ["--cleanup"], True),
        (Path("x"), ["--json", "--cleanup"], True),
        (1, ["--no-cleanup"], False),
    ],
    ids=lambda value: (
        repr(value)[:40] if type(value) is not int else f"an int of {value.bit_length()} bits"
    ),
)
def test_a_job_is_removed_only_if_its_whole_value_was_printed(
    jobs: Jobs, value: object, options: list[str], removed: bool
) -> None:
    job = a_job(value=value)

    ran = jobs("result", "j", *options, among=(job,))

    assert ran.exit_code == 0
    assert ("cleanup" in dict(job.calls)) is removed
    if removed:
        assert "Removed j." in ran.stderr
    else:
        assert "j is kept" in ran.stderr
        assert "kinetic jobs cleanup j" in ran.stderr
        assert ("--output FILE" in ran.stderr) is (options != ["--no-cleanup"])


def test_a_debug_job_is_kept(jobs: Jobs) -> None:
    job = a_job(value=1, debug=True)

    ran = jobs("result", "j", among=(job,))

    assert "cleanup" not in dict(job.calls)
    assert "j is kept. To remove it: kinetic jobs cleanup j" in ran.stderr


@pytest.mark.parametrize(
    ("value", "form"),
    [
        ({"loss": [0.1, None]}, "json"),
        ("ä\n", "json"),
        ((1, 2), "pickle"),
        (float("nan"), "pickle"),
        ({1: 2}, "pickle"),
        (Loss(0.5), "pickle"),
    ],
)
@pytest.mark.parametrize("as_json", [False, True])
def test_output_writes_json_if_that_holds_the_value_and_otherwise_a_pickle(
    jobs: Jobs, tmp_path: Path, value: object, form: str, as_json: bool
) -> None:
    job, path = a_job(value=value), tmp_path / "value"

    ran = jobs("result", "j", "--output", path, *["--json"] * as_json, among=(job,))

    data = path.read_bytes()
    read = json.loads(data) if form == "json" else pickle.loads(data)
    assert (type(read), repr(read)) == (type(value), repr(value))
    assert f"as {'JSON' if form == 'json' else 'a pickle'} to {path}" in ran.stderr
    assert dict(job.calls)["cleanup"]
    output = {"path": str(path), "format": form}
    assert ran.stdout == "" or json.loads(ran.stdout)["output"] == output
    assert [found.name for found in tmp_path.glob("*value*")] == ["value"]


def test_output_writes_the_pickle_of_an_unreadable_value_and_keeps_the_job(
    jobs: Jobs, tmp_path: Path
) -> None:
    error = ResultUnreadableError("It cannot be unpickled here.")
    job, path = a_job(value=(1, 2), raises=error), tmp_path / "value"

    ran = jobs("result", "j", "-o", path, among=(job,))

    assert (ran.exit_code, pickle.loads(path.read_bytes())) == (0, (1, 2))
    assert "cleanup" not in dict(job.calls)
    assert "It cannot be unpickled here." in ran.stderr
    assert "j is kept" in ran.stderr


def test_output_does_not_overwrite_a_file_that_appeared_meanwhile(
    jobs: Jobs, tmp_path: Path
) -> None:
    path = tmp_path / "value"

    class Meanwhile(StubJob):
        def result(self, *_: Any, **options: Any) -> Any:
            path.write_text("of another job")
            return super().result(**options)

    job = Meanwhile(**a_job(value=1).to_dict(), value=1)
    ran = jobs("result", "j", "-o", path, among=(job,))

    assert (ran.exit_code, path.read_text()) == (1, "of another job")
    assert "cleanup" not in dict(job.calls)
    assert "j is kept" in ran.stderr
    assert "File exists" in ran.stderr
    assert [found.name for found in tmp_path.glob("*value*")] == ["value"]


@pytest.mark.parametrize("given", ["-", ".", "there", "link", "nowhere/value"])
def test_output_refuses_a_path_that_is_no_new_file_before_it_waits(
    jobs: Jobs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given: str
) -> None:
    (tmp_path / "there").write_text("only copy")
    (tmp_path / "link").symlink_to("nothing")
    monkeypatch.chdir(tmp_path)
    job = a_job()

    ran = jobs("result", "j", "--output", given, among=(job,))

    assert (ran.exit_code, job.calls) == (2, [])
    assert "--output" in ran.stderr


def test_result_succeeds_although_the_job_cannot_be_removed(jobs: Jobs) -> None:
    class Stuck(StubJob):
        def cleanup(self, *_: Any, **__: Any) -> None:
            raise StoreError("The bucket is away.")

    ran = jobs("result", "j", among=(Stuck(**a_job().to_dict(), value=1),))

    assert (ran.exit_code, ran.stdout) == (0, "1\n")
    assert "could not be removed: The bucket is away." in ran.stderr
    assert "kinetic jobs cleanup j" in ran.stderr


@pytest.mark.parametrize(
    ("value", "kind", "kept"),
    [
        ({"loss": 0.1}, "builtins.dict", {"loss": 0.1}),
        (float("nan"), "builtins.float", None),
        (Path("x"), f"{type(Path('x')).__module__}.PosixPath", None),
    ],
)
def test_result_as_json_has_the_value_if_json_can_hold_it(
    jobs: Jobs, value: object, kind: str, kept: object
) -> None:
    ran = jobs("result", "j", "--json", among=(a_job(value=value),))

    assert json.loads(ran.stdout) == {
        "job_id": "j",
        "succeeded": True,
        "type": kind,
        "value": kept,
        "repr": repr(value),
        "error": None,
        "output": None,
    }


def test_result_as_json_has_the_exception_of_the_function(jobs: Jobs) -> None:
    error = ValueError("loss is [red]nan[/red]")
    error.add_note("Remote traceback:\nTraceback …\n  train.py, line 3\nValueError: loss is nan")

    ran = jobs("result", "j", "--json", among=(a_job(raises=error),))

    document = json.loads(ran.stdout)
    assert (ran.exit_code, document["succeeded"]) == (1, False)
    assert document["error"]["type"] == "builtins.ValueError"
    assert document["error"]["message"] == "loss is [red]nan[/red]"
    assert "train.py, line 3" in document["error"]["notes"][0]


# cancel, cleanup, debug


@pytest.mark.parametrize(
    ("status", "message"),
    [
        ("cancelled", "Cancelled j."),
        ("succeeded", "j had finished already; its value is kept."),
        ("failed", "j had failed already."),
    ],
)
def test_cancel_prints_how_the_job_ended(jobs: Jobs, status: FinalStatus, message: str) -> None:
    job = a_job(reported=ended(status))

    assert jobs("cancel", "j", among=(job,)).stdout == f"{message}\n"
    assert job.calls[-1] == ("cancel", {"cleanup_timeout": 180.0, "cleanup_poll_interval": 2.0})


@pytest.mark.parametrize(
    ("options", "k8s", "gcs"),
    [([], True, True), (["--no-gcs"], True, False), (["--no-k8s", "--gcs"], False, True)],
)
def test_cleanup_passes_its_options_on(
    jobs: Jobs, options: list[str], k8s: bool, gcs: bool
) -> None:
    job = a_job()

    assert jobs("cleanup", "j", *options, among=(job,)).exit_code == 0

    [(verb, given)] = job.calls
    assert (verb, given["k8s"], given["gcs"]) == ("cleanup", k8s, gcs)


def test_debug_prints_the_settings_and_waits_for_the_end_of_the_job(
    jobs: Jobs, tmp_path: Path
) -> None:
    job = a_job(state=JobStatus.SUCCEEDED)

    ran = jobs("debug", "j", "--port", "7", among=(job,))

    assert ran.exit_code == 0
    assert "debugpy waits on 127.0.0.1:7." in ran.stdout
    assert ran.stdout.endswith("}\nj has SUCCEEDED.\n")
    assert "kinetic jobs result j" in ran.stderr
    assert job.calls == [
        ("debug", {"local_port": 7, "working_dir": None}),
        ("log_lines", {"follow": True, "tail": None, "attempt": None}),
    ]
    assert not (tmp_path / ".vscode").exists()


def test_debug_writes_launch_json_on_request_unless_it_is_broken(
    jobs: Jobs, tmp_path: Path
) -> None:
    command = ("debug", "j", "--working-dir", tmp_path, "--write-launch-json")
    file = tmp_path / ".vscode" / "launch.json"

    first = jobs(*command, among=(a_job(),))
    written = json.loads(file.read_text())
    file.write_text("{ nonsense")
    second = jobs(*command, among=(a_job(),))

    assert f"Wrote {file}" in first.stderr
    assert [one["name"] for one in written["configurations"]] == ["Kinetic job"]
    assert second.exit_code == 1
    assert "launch.json cannot be changed" in second.stderr
    assert file.read_text() == "{ nonsense"
    assert list(file.parent.iterdir()) == [file]


# Errors and Ctrl-C


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["result", "j"], "kinetic jobs result j"),
        (["logs", "-f", "j"], "left alone"),
        (["cancel", "j"], "j may still run. Repeat: kinetic jobs cancel j"),
        (["cleanup", "j"], "j may still run. Repeat: kinetic jobs cleanup j"),
    ],
)
def test_ctrl_c_prints_what_becomes_of_the_job(jobs: Jobs, args: list[str], message: str) -> None:
    class Interrupted(StubJob):
        def cancel(self, *_: Any, **__: Any) -> None:
            raise KeyboardInterrupt

        cleanup = cancel

    interrupt: Any = {"lines": [LogLine("one")], "raises": KeyboardInterrupt()}
    job = Interrupted(**a_job().to_dict(), **(interrupt if args[0] in ("result", "logs") else {}))

    ran = jobs(*args, among=(job,))

    assert (ran.exit_code, ran.stdout) == (130, "one\n" * (args[0] == "logs"))
    assert message in ran.stderr


@pytest.mark.parametrize("verb", ["status", "logs", "result", "cancel", "cleanup"])
def test_an_unknown_job_is_an_error(jobs: Jobs, verb: str) -> None:
    ran = jobs(verb, "nope")

    assert (ran.exit_code, ran.stdout) == (1, "")
    assert ran.stderr == ("Error: There is no job 'nope'.\nTo list all jobs: kinetic jobs list\n")


@pytest.mark.parametrize(
    ("command", "ours"),
    [
        ("jobs ls", "jobs list"), ("jobs rm j", "jobs cleanup"), ("jobs stop j", "jobs cancel"),
        ("jobs attach j", "jobs logs --follow"), ("logs j", "jobs logs"), ("ps", "jobs list"),
        ("cancel j", "jobs cancel"),
    ],
)  # fmt: skip
def test_a_command_of_another_tool_is_answered_with_that_of_kinetic(
    tmp_path: Path, command: str, ours: str
) -> None:
    ran = run(*command.split(), home=tmp_path, app=StubApp(a_job()))

    assert (ran.exit_code, f"In Kinetic: kinetic {ours}" in ran.stderr) == (2, True)


@pytest.mark.parametrize(
    "command",
    [
        "list --local --cluster", "cleanup j --no-k8s --no-gcs", "status", "lst", "debug j --port -1",
        "debug j --port 65536", "debug j --port x", "result j --timeout soon", "logs j -n -1", "list --since yesterday", "list --status done", "list --limit 0",
        "cleanup", "cleanup j --finished", "cleanup j --older-than 7d",
    ],
)  # fmt: skip
def test_wrong_usage_is_exit_code_2(jobs: Jobs, command: str) -> None:
    ran = jobs(*command.split(), among=(a_job(),))

    assert ran.exit_code == 2
    assert "Usage: kinetic jobs" in ran.stderr
