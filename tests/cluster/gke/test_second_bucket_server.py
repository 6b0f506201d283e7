"""A job over a bucket server that nobody here wrote."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import urllib3
from second_gcs import second_server

SCRIPT = """
    import os, kinetic
    from pods import small

    @kinetic.run("cpu", container_image=os.environ["IMAGE"], memory="128Mi", pod_overrides=small())
    def function(size):
        print("over another server", flush=True)
        return bytes(size)

    if __name__ == "__main__":
        job = function.run_async(300_000)
        value = job.result()
        print(job.job_id, len(value), job.status().value)
"""


def test_a_job_runs_is_collected_and_cleaned_up(project: Any, tmp_path: Path) -> None:
    host = project.bed.environment["KUBE_BED_HOST"]
    with second_server(tmp_path / "objects", host) as endpoint:
        project.variables |= {"STORAGE_EMULATOR_HOST": endpoint, "KINETIC_STORE": "gs://bucket"}
        job_id, *rest = project.script(SCRIPT).split()
        log = project.kinetic("jobs", "logs", job_id)
        listed = urllib3.request("GET", f"{endpoint}/storage/v1/b/bucket/o").json()["items"]

    assert rest == ["300000", "NOT_FOUND"]
    assert log == "over another server\n"
    assert {each["name"].partition("/")[0] for each in listed} == {"contexts", "logs"}
