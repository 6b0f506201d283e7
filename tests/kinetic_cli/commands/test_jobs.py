"""`kinetic jobs …`: what is asked of a handle, and what is said of its answer."""

from __future__ import annotations

import json
import logging
import pickle
from pathlib import Path
from typing import Any

import pytest

from kinetic.backends.backend import LogLine
from kinetic.errors import (
    JobFailedError,
    ResultTimeoutError,
    ResultUnreadableError,
    SignatureError,
    StoreError,
)
from kinetic.job_status import JobStatus
from kinetic.jobs.handle import JobHandle, connected, handle_of
from kinetic.jobs.outcome import JobOutcome
from kinetic.testing.fakes import FakeServices
from kinetic_cli.app import App
from kinetic_cli.testing import StubApp, StubJob, a_job, run
from kinetic_payload.errors import LoginRequiredError
from kinetic_payload.records.host_outcome import ErrorInfo, HostOutcome
from kinetic_payload.records.outcome import FinalStatus, Outcome


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


def users_error() -> ValueError:
    error = ValueError("loss is [red]nan[/red]")
    error.add_note("Remote traceback:\nTraceback …\n  train.py, line 3\nValueError: loss is nan")
    error.add_note("In phase 'call' of attempt 1 on host 0 of job j.")
    return error


def test_list_shows_status_and_age_in_columns(tmp_path: Path) -> None:
    app = StubApp(a_job("j-new", state=JobStatus.PENDING), a_job("j-old", func_name="[b]f[/b]"))

    ran = run("jobs", "list", home=tmp_path, app=app)

    assert [line.split() for line in ran.stdout.splitlines()] == [
        ["JOB", "ID", "STATUS", "AGE", "FUNCTION", "ACCELERATOR", "BACKEND"],
        ["j-new", "PENDING", "5m", "train", "v5litepod-4", "local"],
        ["j-old", "RUNNING", "5m", "[b]f[/b]", "v5litepod-4", "local"],
    ]


def test_list_as_json_has_stable_keys(tmp_path: Path) -> None:
    ran = run("jobs", "list", "--json", home=tmp_path, app=StubApp(a_job()))

    assert json.loads(ran.stdout) == [
        {
            "job_id": "j",
            "status": "RUNNING",
            "age_seconds": 300.0,
            "created_at": "2023-11-14T22:08:20+00:00",
            "function": "train",
            "accelerator": "v5litepod-4",
            "backend": "local",
            "project": "local",
            "cluster": "kinetic-cluster",
            "zone": "us-central1-a",
            "namespace": "default",
            "group_id": None,
        }
    ]


def test_list_without_jobs_prints_no_data(tmp_path: Path) -> None:
    assert run("jobs", "list", home=tmp_path, app=StubApp()).stdout == ""
    assert json.loads(run("jobs", "list", "--json", home=tmp_path, app=StubApp()).stdout) == []


def test_a_job_that_cannot_be_asked_does_not_hide_the_others(tmp_path: Path) -> None:
    broken = a_job("broken", raises=StoreError("disk on fire"))

    ran = run("jobs", "list", "--json", home=tmp_path, app=StubApp(broken, a_job("well")))

    assert [job["status"] for job in json.loads(ran.stdout)] == [None, "RUNNING"]
    assert "disk on fire" in ran.stderr
    assert ran.exit_code == 0


def test_jobs_that_cannot_be_verified_are_shown_so_and_explained_once(tmp_path: Path) -> None:
    refused = SignatureError("It is not signed.", hint="Copy the key.")
    jobs = [a_job("a", raises=refused), a_job("b", raises=refused), a_job("well")]

    ran = run("jobs", "list", "--json", home=tmp_path, app=StubApp(*jobs))

    assert [job["status"] for job in json.loads(ran.stdout)] == ["UNVERIFIED"] * 2 + ["RUNNING"]
    assert ran.stderr == "Warning: 2 jobs are UNVERIFIED. It is not signed.\nCopy the key.\n"


@pytest.mark.parametrize(
    ("options", "where", "cluster"),
    [
        ([], None, None),
        (["--local"], "local", None),
        (["--cluster"], "cluster", None),
        (["--cluster", "--json"], "cluster", None),
        (["--cluster", "big"], "cluster", "big"),
        (["--cluster=big"], "cluster", "big"),
    ],
)
def test_list_looks_where_it_is_told(
    tmp_path: Path, options: list[str], where: str | None, cluster: str | None
) -> None:
    app = StubApp()

    run("jobs", "list", *options, home=tmp_path, app=app)

    assert (app.asked, app.target.get("cluster")) == (where, cluster)


def test_local_and_cluster_exclude_each_other(tmp_path: Path) -> None:
    assert run("jobs", "list", "--local", "--cluster", home=tmp_path, app=StubApp()).exit_code == 2


def test_status_says_why_and_what_each_host_reported(tmp_path: Path) -> None:
    job = a_job(reported=ended("failed", message="ValueError: nan"))

    ran = run("jobs", "status", "j", home=tmp_path, app=StubApp(job))

    lines = ran.stdout.splitlines()
    assert lines[0].split() == ["status", "FAILED"]
    assert lines[1].split(maxsplit=1) == ["why", "ValueError: nan"]
    assert lines[-1].split(maxsplit=5) == ["1", "0", "exception", "call", "1", "ValueError: nan"]
    assert ran.exit_code == 0


def test_status_as_json_needs_no_unpickling_to_name_the_exception(tmp_path: Path) -> None:
    error = ErrorInfo(type="builtins.ValueError", message="nan", traceback="Traceback …")
    job = a_job(reported=ended("failed", error=error))

    document = json.loads(
        run("jobs", "status", "j", "--json", home=tmp_path, app=StubApp(job)).stdout
    )

    assert set(document) == {"job_id", "status", "message", "age_seconds", "handle", "hosts"}
    assert document["handle"]["accelerator"] == "v5litepod-4"
    assert document["hosts"][0]["error"] == {
        "type": "builtins.ValueError",
        "message": "nan",
        "traceback": "Traceback …",
    }


def test_logs_are_printed_as_they_are(tmp_path: Path) -> None:
    lines = [LogLine("[info] 1/2"), LogLine("[/path] \x1b[31mred\x1b[0m"), LogLine("")]

    ran = run("jobs", "logs", "j", home=tmp_path, app=StubApp(a_job(lines=lines)))

    assert ran.stdout == "[info] 1/2\n[/path] \x1b[31mred\x1b[0m\n\n"


def test_logs_as_json_are_one_document_a_line(tmp_path: Path) -> None:
    lines = [LogLine("a\u2028b", host=0), LogLine("c", host=1, attempt=2)]

    ran = run("jobs", "logs", "j", "--json", home=tmp_path, app=StubApp(a_job(lines=lines)))

    assert [json.loads(line) for line in ran.stdout.split("\n")[:-1]] == [
        {"host": 0, "attempt": 1, "text": "a\u2028b"},
        {"host": 1, "attempt": 2, "text": "c"},
    ]


@pytest.mark.parametrize(
    ("options", "asked"),
    [
        ([], {"follow": False, "tail": None}),
        (["-f"], {"follow": True, "tail": None}),
        (["--follow", "--tail", "5"], {"follow": True, "tail": 5}),
        (["-n", "0"], {"follow": False, "tail": 0}),
    ],
)
def test_logs_passes_on_what_is_wanted(
    tmp_path: Path, options: list[str], asked: dict[str, Any]
) -> None:
    job = a_job()

    run("jobs", "logs", "j", *options, home=tmp_path, app=StubApp(job))

    assert job.calls == [("log_lines", asked)]


def test_an_interrupted_follow_leaves_the_job_alone(tmp_path: Path) -> None:
    job = a_job(lines=[LogLine("one")], raises=KeyboardInterrupt())

    ran = run("jobs", "logs", "-f", "j", home=tmp_path, app=StubApp(job))

    assert (ran.exit_code, ran.stdout) == (130, "one\n")
    assert "left alone" in ran.stderr


def test_a_followed_log_asks_for_a_login_once(tmp_path: Path) -> None:
    services = FakeServices.make()
    job = connected(handle_of(services.job()), services)

    class FollowingApp(App):
        def attach(self, job_id: str) -> JobHandle:
            self._print_warnings()
            return job

    def report(*_: object) -> None:
        for host in range(2):
            error = LoginRequiredError(
                f"Could not get Pod {host}.", hint="Log in with: sso login --from=cli"
            )
            logging.getLogger("kinetic").warning("%s The log continues after that.", error)

    services.journal.before("log_lines *", report)
    services.backend.prints(job.job_id, "one")
    services.backend.returns(job.job_id, None)

    ran = run("jobs", "logs", "-f", job.job_id, home=tmp_path, app=FollowingApp())

    assert ran.stdout == "one\n"
    assert ran.stderr.count("sso login") == 1, ran.stderr
    assert ran.stderr.startswith("Warning: Could not get Pod 0.")


@pytest.mark.parametrize(
    ("value", "printed"),
    [
        (0.5, "0.5\n"),
        ("two\nlines", "two\nlines\n"),
        (None, "None\n"),
        ({"a": [1]}, "{'a': [1]}\n"),
    ],
)
def test_result_prints_the_value_and_nothing_else_on_stdout(
    tmp_path: Path, value: object, printed: str
) -> None:
    ran = run("jobs", "result", "j", home=tmp_path, app=StubApp(a_job(value=value)))

    assert (ran.exit_code, ran.stdout) == (0, printed)
    assert "j is RUNNING" in ran.stderr


@pytest.mark.parametrize(
    ("options", "asked"),
    [
        ([], {}),
        (["--cleanup", "--timeout", "1.5"], {"timeout": 1.5}),
        (
            ["--cleanup-timeout", "9", "--cleanup-poll-interval", "0.5"],
            {"cleanup_timeout": 9.0, "cleanup_poll_interval": 0.5},
        ),
    ],
)
def test_result_passes_its_options_on_and_cleans_up_after_it_printed(
    tmp_path: Path, options: list[str], asked: dict[str, Any]
) -> None:
    job = a_job()
    removal = {"cleanup_timeout": 180.0, "cleanup_poll_interval": 2.0}
    removal.update({key: value for key, value in asked.items() if key in removal})

    ran = run("jobs", "result", "j", *options, home=tmp_path, app=StubApp(job))

    assert job.calls == [
        ("result", {"timeout": asked.get("timeout"), "cleanup": False}),
        ("cleanup", removal),
    ]
    assert ran.stderr.endswith("Removed j.\n")


class Loss(float):
    pass


PARTS = ["a", {"b": None}, [0.5, True, -3]]
LOSSY: list[Any] = [
    float("nan"),
    Path("x"),
    {"a": Loss(0.5)},
    "x" * 10 + "\ud800",
    10**5000,
    [Ellipsis],
]


@pytest.mark.parametrize(
    ("value", "options", "removed"),
    [
        *((value, [], True) for value in (*PARTS, (1, {2: b"x"}), {3, 4})),
        *((value, ["--json"], True) for value in PARTS),
        *((value, [], False) for value in (*LOSSY, "x" * 10 + "\ud800", ["x" * 1_000_000])),
        *((value, ["--json"], False) for value in (*LOSSY, (1, 2), {1: 2}, b"x", [{"a": (1,)}])),
        (Path("x"), ["--cleanup"], True),
        (Path("x"), ["--json", "--cleanup"], True),
        (1, ["--no-cleanup"], False),
    ],
    ids=lambda value: (
        repr(value)[:40] if type(value) is not int else f"an int of {value.bit_length()} bits"
    ),
)
def test_a_job_is_removed_only_where_what_was_printed_is_its_whole_value(
    tmp_path: Path, value: object, options: list[str], removed: bool
) -> None:
    job = a_job(value=value)

    ran = run("jobs", "result", "j", *options, home=tmp_path, app=StubApp(job))

    assert ran.exit_code == 0
    assert ("cleanup" in dict(job.calls)) is removed
    if removed:
        assert "Removed j." in ran.stderr
    else:
        assert "j is kept" in ran.stderr
        assert "kinetic jobs cleanup j" in ran.stderr
        assert ("--output FILE" in ran.stderr) is (options != ["--no-cleanup"])


def test_a_debug_job_is_kept(tmp_path: Path) -> None:
    job = a_job(value=1, debug=True)

    ran = run("jobs", "result", "j", home=tmp_path, app=StubApp(job))

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
def test_output_writes_json_where_it_holds_the_value_and_else_the_pickle(
    tmp_path: Path, value: object, form: str, as_json: bool
) -> None:
    job, path = a_job(value=value), tmp_path / "value"
    options = ["--output", str(path), *(["--json"] if as_json else [])]

    ran = run("jobs", "result", "j", *options, home=tmp_path / "home", app=StubApp(job))

    data = path.read_bytes()
    read = json.loads(data) if form == "json" else pickle.loads(data)
    assert (type(read), repr(read)) == (type(value), repr(value))
    assert f"as {'JSON' if form == 'json' else 'a pickle'} to {path}" in ran.stderr
    assert dict(job.calls)["cleanup"]
    assert ran.stdout == "" or json.loads(ran.stdout)["output"] == {
        "path": str(path),
        "format": form,
    }
    assert [found.name for found in tmp_path.glob("*value*")] == ["value"]


def test_output_writes_the_pickle_of_a_value_that_cannot_be_read_here_and_keeps_the_job(
    tmp_path: Path,
) -> None:
    error = ResultUnreadableError("It cannot be unpickled here.")
    job, path = a_job(value=(1, 2), raises=error), tmp_path / "value"

    ran = run("jobs", "result", "j", "-o", str(path), home=tmp_path / "home", app=StubApp(job))

    assert (ran.exit_code, pickle.loads(path.read_bytes())) == (0, (1, 2))
    assert "cleanup" not in dict(job.calls)
    assert "It cannot be unpickled here." in ran.stderr
    assert "j is kept" in ran.stderr


def test_output_leaves_alone_what_appeared_meanwhile_and_keeps_the_job(tmp_path: Path) -> None:
    path = tmp_path / "value"

    class Meanwhile(StubJob):
        def result(self, *_: Any, **options: Any) -> Any:
            path.write_text("of another job")
            return super().result(**options)

    job = Meanwhile(**a_job(value=1).to_dict(), value=1)
    ran = run("jobs", "result", "j", "-o", str(path), home=tmp_path / "home", app=StubApp(job))

    assert (ran.exit_code, path.read_text()) == (1, "of another job")
    assert "cleanup" not in dict(job.calls)
    assert "j is kept" in ran.stderr
    assert "File exists" in ran.stderr
    assert [found.name for found in tmp_path.glob("*value*")] == ["value"]


@pytest.mark.parametrize("given", ["-", ".", "there", "link", "nowhere/value"])
def test_output_refuses_what_cannot_be_a_new_file_before_it_waits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given: str
) -> None:
    (tmp_path / "there").write_text("only copy")
    (tmp_path / "link").symlink_to("nothing")
    monkeypatch.chdir(tmp_path)
    job = a_job()

    ran = run("jobs", "result", "j", "--output", given, home=tmp_path / "home", app=StubApp(job))

    assert (ran.exit_code, job.calls) == (2, [])
    assert "--output" in ran.stderr


def test_a_value_that_is_written_is_no_failure_where_the_job_cannot_be_removed(
    tmp_path: Path,
) -> None:
    class Stuck(StubJob):
        def cleanup(self, *_: Any, **__: Any) -> None:
            raise StoreError("The bucket is away.")

    job = Stuck(**a_job().to_dict(), value=1)
    ran = run("jobs", "result", "j", home=tmp_path, app=StubApp(job))

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
def test_result_as_json_holds_the_value_where_json_can(
    tmp_path: Path, value: object, kind: str, kept: object
) -> None:
    ran = run("jobs", "result", "j", "--json", home=tmp_path, app=StubApp(a_job(value=value)))

    assert json.loads(ran.stdout) == {
        "job_id": "j",
        "succeeded": True,
        "type": kind,
        "value": kept,
        "repr": repr(value),
        "error": None,
        "output": None,
    }


def test_the_users_exception_is_shown_with_its_remote_traceback_and_none_of_ours(
    tmp_path: Path,
) -> None:
    ran = run("jobs", "result", "j", home=tmp_path, app=StubApp(a_job(raises=users_error())))

    assert (ran.exit_code, ran.stdout) == (1, "")
    assert "Error: ValueError: loss is [red]nan[/red]" in ran.stderr
    assert "train.py, line 3" in ran.stderr
    assert "kinetic_cli" not in ran.stderr


def test_a_failed_result_as_json_is_a_document_too(tmp_path: Path) -> None:
    job = a_job(raises=users_error())

    ran = run("jobs", "result", "j", "--json", home=tmp_path, app=StubApp(job))

    document = json.loads(ran.stdout)
    assert (ran.exit_code, document["succeeded"]) == (1, False)
    assert document["error"]["type"] == "builtins.ValueError"
    assert document["error"]["message"] == "loss is [red]nan[/red]"
    assert "train.py, line 3" in document["error"]["notes"][0]


@pytest.mark.parametrize(
    "error",
    [
        JobFailedError("Job j failed: killed by signal 9.", hint="Its log: kinetic jobs logs j"),
        ResultTimeoutError("Job j is still RUNNING.", hint="It runs on."),
    ],
)
def test_an_error_of_ours_is_message_and_hint(tmp_path: Path, error: JobFailedError) -> None:
    ran = run("jobs", "result", "j", home=tmp_path, app=StubApp(a_job(raises=error)))

    assert ran.exit_code == 1
    assert ran.stderr.endswith(f"Error: {error.message}\n{error.hint}\n")


def test_an_interrupted_wait_says_how_to_come_back(tmp_path: Path) -> None:
    job = a_job(raises=KeyboardInterrupt())

    ran = run("jobs", "result", "j", home=tmp_path, app=StubApp(job))

    assert ran.exit_code == 130
    assert "kinetic jobs result j" in ran.stderr


@pytest.mark.parametrize("command", ["cancel", "cleanup"])
def test_an_interrupted_stop_says_that_the_job_may_still_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    job = a_job()

    def interrupted(**_: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(job, command, interrupted)
    ran = run("jobs", command, "j", home=tmp_path, app=StubApp(job))

    assert ran.exit_code == 130
    assert f"j may still run. Repeat: kinetic jobs {command} j" in ran.stderr


class _Rude:
    def __repr__(self) -> str:
        raise RuntimeError("no")


def test_a_value_that_cannot_show_itself_is_no_failure(tmp_path: Path) -> None:
    ran = run("jobs", "result", "j", home=tmp_path, app=StubApp(a_job(value=_Rude())))

    assert (ran.exit_code, ran.stdout) == (0, "<_Rude whose repr fails>\n")


@pytest.mark.parametrize(
    ("job", "said"),
    [
        (a_job(reported=ended("cancelled")), "Cancelled j."),
        (a_job(reported=ended("succeeded")), "j had finished already; its value is kept."),
        (a_job(reported=ended("failed")), "j had failed already."),
    ],
)
def test_cancel_says_what_became_of_the_job(tmp_path: Path, job: StubJob, said: str) -> None:
    ran = run("jobs", "cancel", "j", home=tmp_path, app=StubApp(job))

    assert ran.stdout == f"{said}\n"
    assert job.calls[-1] == ("cancel", {"cleanup_timeout": 180.0, "cleanup_poll_interval": 2.0})


@pytest.mark.parametrize(
    ("options", "k8s", "gcs"),
    [([], True, True), (["--no-gcs"], True, False), (["--no-k8s", "--gcs"], False, True)],
)
def test_cleanup_removes_what_it_is_told_to(
    tmp_path: Path, options: list[str], k8s: bool, gcs: bool
) -> None:
    job = a_job()

    ran = run("jobs", "cleanup", "j", *options, home=tmp_path, app=StubApp(job))

    assert ran.exit_code == 0
    [(verb, asked)] = job.calls
    assert (verb, asked["k8s"], asked["gcs"]) == ("cleanup", k8s, gcs)


@pytest.mark.parametrize(
    "args",
    [
        ["jobs", "cleanup", "j", "--no-k8s", "--no-gcs"],
        ["jobs", "result", "j", "--timeout", "soon"],
        ["jobs", "result", "j", "--timeout", "nan"],
        ["jobs", "result", "j", "--timeout", "1e999"],
        ["jobs", "result", "j", "--timeout", "１"],
        ["jobs", "result", "j", "--cleanup-timeout", "nan"],
        ["jobs", "cleanup", "j", "--cleanup-poll-interval", "1_0"],
        ["jobs", "logs", "j", "-n", "-1"],
        ["jobs", "logs", "j", "-n", "1_0"],
        ["jobs", "logs", "j", "-n", "٣"],
        ["jobs", "status"],
        ["jobs", "lst"],
    ],
)
def test_wrong_usage_is_exit_code_2(tmp_path: Path, args: list[str]) -> None:
    ran = run(*args, home=tmp_path, app=StubApp(a_job()))

    assert ran.exit_code == 2
    assert "Usage: kinetic jobs" in ran.stderr


@pytest.mark.parametrize("verb", ["status", "logs", "result", "cancel", "cleanup"])
def test_an_unknown_job_is_message_hint_and_exit_code_1(tmp_path: Path, verb: str) -> None:
    ran = run("jobs", verb, "nope", home=tmp_path, app=StubApp())

    assert (ran.exit_code, ran.stdout) == (1, "")
    assert ran.stderr == (
        "Error: There is no job 'nope'.\nList the jobs there are with: kinetic jobs list\n"
    )


def test_debug_prints_the_settings_and_waits_for_the_end_of_the_job(tmp_path: Path) -> None:
    job = a_job(state=JobStatus.SUCCEEDED)

    ran = run("jobs", "debug", "j", "--port", "7", home=tmp_path, app=StubApp(job))

    assert ran.exit_code == 0
    assert "debugpy waits on 127.0.0.1:7." in ran.stdout
    assert ran.stdout.endswith("}\nj has SUCCEEDED.\n")
    assert "kinetic jobs result j" in ran.stderr
    assert job.calls == [
        ("debug", {"local_port": 7, "working_dir": None}),
        ("log_lines", {"follow": True, "tail": None}),
    ]
    assert not (tmp_path / ".vscode").exists()


def test_debug_writes_launch_json_only_if_asked_and_only_if_it_can_be_read(tmp_path: Path) -> None:
    command = ["jobs", "debug", "j", "--working-dir", str(tmp_path), "--write-launch-json"]
    file = tmp_path / ".vscode" / "launch.json"

    first = run(*command, home=tmp_path, app=StubApp(a_job()))
    written = json.loads(file.read_text())
    file.write_text("{ nonsense")
    second = run(*command, home=tmp_path, app=StubApp(a_job()))

    assert f"Wrote {file}" in first.stderr
    assert [one["name"] for one in written["configurations"]] == ["Kinetic job"]
    assert second.exit_code == 1
    assert "launch.json cannot be changed" in second.stderr
    assert file.read_text() == "{ nonsense"
    assert list(file.parent.iterdir()) == [file]


@pytest.mark.parametrize("port", ["-1", "65536", "x"])
def test_debug_refuses_a_port_that_there_is_not(tmp_path: Path, port: str) -> None:
    assert run("jobs", "debug", "j", "--port", port, home=tmp_path).exit_code == 2
