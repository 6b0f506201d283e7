"""Jobs over a bucket, from the submit to the value: `KINETIC_STORE=gs://…` with the real runner."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from kinetic.backends.local.liveness import is_alive
from kinetic.backends.local.paths import Home
from kinetic.testing import eventually
from kinetic_payload.testing.gcs import GcsServer


@pytest.fixture
def bucket(project: Any) -> Iterator[GcsServer]:
    """Have every script of the project keep its jobs in a bucket, below a prefix."""
    with GcsServer() as server:
        server.create_bucket("jobs")
        project.more = {**server.environment, "KINETIC_STORE": "gs://jobs/team"}
        yield server


def with_the_key(project: Any) -> str:
    """Return another home that has the key of the project's."""
    other: Path = project.home.with_name("other")
    other.mkdir()
    (other / "key").write_bytes((project.home / "key").read_bytes())
    return str(other)


def said(project: Any, text: str, *args: str, **environment: str) -> Any:
    out = project.script(text, *args, **project.more, **environment)
    return json.loads(out.splitlines()[-1])


def test_values_exceptions_logs_and_outputs_go_through_the_bucket_alone(
    project: Any, bucket: GcsServer
) -> None:
    project.write("helper.py", "class Odd(Exception): pass\n\ndef double(x): return 2 * x\n")
    ends = said(
        project,
        """
import json, os
import kinetic
import helper

@kinetic.run(accelerator="cpu")
def work(what):
    print("begin", what, flush=True)
    if what == "large":
        return os.urandom(5_000_000)
    if what == "error":
        raise helper.Odd("no", 7)
    return helper.double(what), os.environ["KINETIC_OUTPUT_DIR"]

if __name__ == "__main__":
    jobs = [work.run_async(what) for what in (21, "large", "error")]
    small, output = jobs[0].result(timeout=100, cleanup=False)
    large = jobs[1].result(timeout=100, cleanup=False)
    try:
        jobs[2].result(timeout=100, cleanup=False)
    except helper.Odd as error:
        odd = list(error.args)
    print(json.dumps([small, output, len(large), odd, [job.logs() for job in jobs],
                      [job.job_id for job in jobs]]))
""",
    )

    small, output, large, odd, logs, ids = ends
    assert (small, large, odd) == (42, 5_000_000, ["no", 7])
    assert output == f"gs://jobs/team/outputs/{ids[0]}"
    assert [log.splitlines()[0] for log in logs] == ["begin 21", "begin large", "begin error"]
    names = bucket.names("jobs")
    assert all(name.startswith("team/") for name in names)
    assert f"team/{ids[1]}/attempts/1/host-0.pkl" in names
    assert len([name for name in names if "/contexts/" in name]) == 1
    assert all(
        "signature" in json.loads(bucket.read("jobs", f"team/{one}/outcome.json")) for one in ids
    )
    assert not (project.home / "store").exists()


def test_the_key_is_nowhere_in_the_job_and_the_way_to_the_bucket_is(
    project: Any, bucket: GcsServer
) -> None:
    key, environment, kernel, stored = said(
        project,
        """
import json, os, subprocess
from pathlib import Path
import kinetic

@kinetic.run(accelerator="cpu")
def look():
    from google.cloud import storage
    client = storage.Client(project="p")
    out = os.environ["KINETIC_OUTPUT_DIR"].removeprefix("gs://")
    bucket, _, name = out.partition("/")
    client.bucket(bucket).blob(f"{name}/checkpoint").upload_from_string(b"weights")
    whole = subprocess.run(["env"], capture_output=True, text=True, check=True).stdout
    kernel = Path("/proc/self/environ")
    return (repr(dict(os.environ)) + whole, kernel.read_text() if kernel.exists() else "",
            f"{name}/checkpoint")

if __name__ == "__main__":
    environment, kernel, stored = look()
    key = Path(os.environ["KINETIC_HOME"], "key").read_text().strip()
    print(json.dumps([key, environment, kernel, stored]))
""",
    )

    assert len(key) == 64
    assert key not in environment
    assert key not in kernel
    assert "KINETIC_SIGNING_KEY" not in environment + kernel
    assert bucket.read("jobs", stored) == b"weights"


FOLLOW = """
import json, pathlib, sys
import kinetic

job = kinetic.attach(sys.argv[1])
before, lines = job.status().value, []
for line in job.log_lines(follow=True):
    lines.append(line.text)
    pathlib.Path(sys.argv[2]).touch()
print(json.dumps([before, lines, [line.text for line in job.log_lines(follow=True, tail=1)],
                  job.status().value]))
"""


def test_a_job_is_followed_and_its_end_is_seen_from_another_home(
    project: Any, bucket: GcsServer, tmp_path: Path
) -> None:
    followed = str(tmp_path / "followed")
    job_id = said(
        project,
        """
import json, os, sys, time
import kinetic

@kinetic.run(accelerator="cpu")
def work(followed):
    print("line 0", flush=True)
    while not os.path.exists(followed):
        time.sleep(0.02)
    print("line 1")
    print("no end", end="")

if __name__ == "__main__":
    print(json.dumps(work.run_async(sys.argv[1]).job_id))
""",
        followed,
    )
    project.write("follow.py", FOLLOW)
    other = with_the_key(project)

    done = project.run("follow.py", job_id, followed, **project.more, KINETIC_HOME=other)

    assert done.returncode == 0, done.stderr
    before, lines, tail, after = json.loads(done.stdout)
    assert before in ("PENDING", "RUNNING")
    assert lines == ["line 0", "line 1", "no end"]
    assert tail == ["no end"]
    assert after == "SUCCEEDED"


def test_a_bucket_that_is_away_for_a_while_costs_a_job_nothing(
    project: Any, bucket: GcsServer, tmp_path: Path
) -> None:
    away = tmp_path / "away"
    project.write(
        "main.py",
        """
        import json, os, sys, time
        import kinetic

        @kinetic.run(accelerator="cpu")
        def work(away):
            print("up", flush=True)
            while not os.path.exists(away):
                time.sleep(0.02)
            print("x" * 100_000)
            return [1] * 100_000

        if __name__ == "__main__":
            job = work.run_async(sys.argv[1])
            print("submitted", flush=True)
            for line in job.log_lines(follow=True):
                print("up" if line.text == "up" else "", flush=True)
                break
            value = job.result(timeout=100, cleanup=False)
            print(json.dumps([len(value), [len(line) for line in job.logs().splitlines()],
                              job.job_id]))
        """,
    )
    process = project.start("main.py", str(away), **project.more)
    assert process.stdout is not None
    assert process.stdout.readline() == "submitted\n"
    assert process.stdout.readline() == "up\n"
    fault = bucket.faults.add(status=503, seconds=2)
    away.touch()

    out, err = process.communicate()

    assert process.returncode == 0, err
    length, lines, job_id = json.loads(out.splitlines()[-1])
    assert (length, lines) == (100_000, [2, 100_000])
    assert fault.hits > 0
    chunks = bucket.names("jobs", f"team/logs/{job_id}/")
    assert (
        b"".join(bucket.read("jobs", name) for name in chunks) == b"up\n" + b"x" * 100_000 + b"\n"
    )


def test_attempts_and_hosts_report_through_the_bucket(project: Any, bucket: GcsServer) -> None:
    value, reports = said(
        project,
        """
import json, os
import kinetic

@kinetic.run(accelerator="tpu-v4-2x2x2", backend="local-gke", retries=2)
def work():
    host = int(os.environ["KINETIC_HOST_INDEX"])
    if os.environ["KINETIC_ATTEMPT"] == "1" and host == 1:
        raise ValueError("not yet")
    return host, os.environ["KINETIC_HOST_COUNT"]

if __name__ == "__main__":
    job = work.run_async()
    value = job.result(timeout=100, cleanup=False)
    print(json.dumps([value, [(one.attempt, one.host, one.succeeded) for one in job.outcome().hosts]]))
""",
    )

    assert value == [0, "2"]
    assert [1, 1, False] in reports
    assert [one for one in reports if one[0] == 2] == [[2, 0, True], [2, 1, True]]


@pytest.mark.skipif(sys.platform != "linux", reason="mount namespaces")
def test_volumes_come_from_the_bucket_to_where_they_were_asked_for(
    project: Any, bucket: GcsServer
) -> None:
    from kinetic_runner.data.mounts import why_not_private

    if why_not_private() is not None:
        pytest.skip("no mount namespaces here")
    project.write("data/a.txt", "hello")

    text = said(
        project,
        """
import json
import kinetic

@kinetic.run(accelerator="cpu", volumes={"/srv/kinetic-test": kinetic.Data("data")})
def work():
    return open("/srv/kinetic-test/a.txt").read()

if __name__ == "__main__":
    print(json.dumps(work()))
""",
    )

    assert text == "hello"
    assert [name for name in bucket.names("jobs") if name.startswith("team/data-markers/")]


def test_a_killed_client_leaves_a_job_that_another_home_can_collect_with_the_key(
    project: Any, bucket: GcsServer
) -> None:
    project.write(
        "main.py",
        """
        import os, signal, time
        import kinetic

        @kinetic.run(accelerator="cpu")
        def work():
            time.sleep(0.5)
            return "kept"

        if __name__ == "__main__":
            print(work.run_async().job_id, flush=True)
            os.kill(os.getpid(), signal.SIGKILL)
        """,
    )
    killed = project.run("main.py", **project.more)
    job_id = killed.stdout.strip()
    other = with_the_key(project)
    project.write(
        "collect.py",
        "import kinetic, sys\nprint(kinetic.attach(sys.argv[1]).result(timeout=100, cleanup=False))",
    )

    done = project.run("collect.py", job_id, **project.more, KINETIC_HOME=other)

    assert (done.stdout, done.returncode) == ("kept\n", 0), done.stderr


def test_a_job_whose_function_never_ends_is_over_when_everything_of_it_was_killed(
    project: Any, bucket: GcsServer
) -> None:
    import psutil

    job_id = said(
        project,
        """
import json, time
import kinetic

@kinetic.run(accelerator="cpu")
def work():
    print("up", flush=True)
    time.sleep(600)

if __name__ == "__main__":
    job = work.run_async()
    next(iter(job.log_lines(follow=True)))
    print(json.dumps(job.job_id))
""",
    )
    lease = f"team/{job_id}/lease.json"
    eventually(lambda: bucket.names("jobs", lease))
    theirs = []
    for process in psutil.process_iter():
        try:
            if job_id in " ".join(process.cmdline()):
                process.suspend()  # Or whoever is killed last says how the first one ended.
                theirs.append(process)
        except psutil.Error:
            continue
    for process in theirs:
        process.kill()
    eventually(lambda: not is_alive(Home(str(project.home)).job(job_id)))
    bucket.age("jobs", lease, timedelta(hours=-1))  # Nobody is so slow that it runs out now.
    project.write(
        "look.py",
        "import kinetic, sys\nprint(kinetic.attach(sys.argv[1]).status().value)",
    )
    other = with_the_key(project)
    assert project.run("look.py", job_id, **project.more, KINETIC_HOME=other).stdout == "RUNNING\n"

    here = project.run("look.py", job_id, **project.more)

    assert here.stdout == "FAILED\n", here.stderr
    there = project.run("look.py", job_id, **project.more, KINETIC_HOME=other)
    assert there.stdout == "FAILED\n"
