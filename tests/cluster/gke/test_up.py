"""From an empty project to a running job, and back, with commands only."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from wheel_maker import small_jax

from kinetic_servers.google import GoogleCloud

QUICKSTART = """
import kinetic
from pods import small


@kinetic.run("cpu", backend="gke", pod_overrides=small(), memory="512Mi")
def add(a, b):
    import humanize

    return humanize.intcomma(a + b)


if __name__ == "__main__":
    print(add(1000, 234))
"""


def test_a_new_project_gets_clusters_runs_a_job_and_is_left_without_a_trace(
    project: Any, authority: Any, tmp_path: Path
) -> None:
    bed = project.bed
    ca = Path(bed.environment["KUBE_BED_CA"]).read_text()
    with GoogleCloud(
        tmp_path / "google",
        authority=authority,
        api_server=lambda _: (bed.environment["KUBE_BED_SERVER"], ca),
        token="kube-bed-admin",
        host=bed.environment["KUBE_BED_HOST"],
    ) as cloud:
        cloud.add_project("my-project", number=123456789012)
        (project.root / "requirements.txt").write_text(f"{small_jax(project.root)}humanize\n")
        project.variables |= {
            **cloud.environment,
            "KINETIC_BACKEND": "",
            "KINETIC_KUBE_CONTEXT": "",
            "KINETIC_STORE": "",
            "KINETIC_PROJECT": "my-project",
            "KINETIC_CLUSTER": "demo",
            "KINETIC_IMAGE_BUILDER": "layers",
            "KINETIC_IMAGE_REPO": f"127.0.0.1:5000/{project.namespace}/up",
            "KINETIC_BASE_IMAGE": "127.0.0.1:5000/base/python:3.11",
        }
        second = ("--cluster", "second", "--zone", "us-east1")
        other = project.start("-m", "kinetic_cli", "up", "--yes", *second)
        # No other test uses this accelerator, and pools belong to no namespace.
        project.kinetic("up", "--yes", "--accelerator", "p4")
        out, err = other.communicate(timeout=120)
        assert other.returncode == 0, out + err

        # The default zone leads to the cluster in its region.
        assert project.script(QUICKSTART) == "1,234\n"

        status = json.loads(project.kinetic("status", "--json"))
        assert status["status"] == "RUNNING"
        assert "kinetic-p4" in [pool["name"] for pool in status["pools"]]
        checks = json.loads(project.kinetic("doctor", "--json"))
        assert {check["state"] for check in checks} <= {"pass", "warn"}

        project.kinetic("down", "--yes", "--delete-data")
        left = cloud.resources("my-project")
        assert not [name for name in left if "demo" in name]
        assert "container/clusters/us-east1/second" in left
        project.kinetic("down", "--yes", "--delete-data", *second)
        left = cloud.resources("my-project")
        assert all(name.startswith("serviceusage/") for name in left), left
        bed.kubectl("delete", "computeclass", "kinetic-p4")
