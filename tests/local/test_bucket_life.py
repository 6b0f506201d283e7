"""Jobs over a bucket with the real runner: `KINETIC_STORE=gs://…`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kinetic_servers.gcs import GcsServer


@pytest.fixture
def bucket(project: Any) -> Iterator[GcsServer]:
    """Have every script of the project keep its jobs in a bucket, below a prefix."""
    with GcsServer() as server:
        server.create_bucket("jobs")
        project.more = {**server.environment, "KINETIC_STORE": "gs://jobs/team"}
        yield server


def printed(project: Any, text: str, *args: str, **environment: str) -> Any:
    out = project.script(text, *args, **project.more, **environment)
    return json.loads(out.splitlines()[-1])


def test_a_job_can_use_the_bucket_and_sees_no_key(project: Any, bucket: GcsServer) -> None:
    key, environment, kernel, stored = printed(
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


def test_a_job_is_followed_to_its_last_line_from_another_home(
    project: Any, bucket: GcsServer, tmp_path: Path
) -> None:
    followed = str(tmp_path / "followed")
    job_id = printed(
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
    other = project.home.with_name("other")
    other.mkdir()
    (other / "key").write_bytes((project.home / "key").read_bytes())

    done = project.run("follow.py", job_id, followed, **project.more, KINETIC_HOME=str(other))

    assert done.returncode == 0, done.stderr
    before, lines, tail, after = json.loads(done.stdout)
    assert before in ("PENDING", "RUNNING")
    assert lines == ["line 0", "line 1", "no end"]
    assert tail == ["no end"]
    assert after == "SUCCEEDED"
