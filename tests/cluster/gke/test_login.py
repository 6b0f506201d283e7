"""A login that expires while a job is awaited; and clusters that are found by their name."""

from __future__ import annotations

import sys
import textwrap
import threading
from pathlib import Path
from typing import Any

from kinetic_servers.gke import GkeServer

SCRIPT = """
import os
import kinetic
from gates import gate
from pods import small

@kinetic.run("cpu", container_image=os.environ["IMAGE"], memory="128Mi", pod_overrides=small())
def function(name):
    print("before", flush=True)
    gate(name)
    print("after", flush=True)
    return 42
"""
PLUGIN = """
import json, pathlib, sys
if not pathlib.Path(sys.argv[1]).exists():
    sys.exit("Your session has ended: run `sso login`.")
print(json.dumps({"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential",
                  "status": {"token": "kube-bed-admin"}}))
"""


def test_a_blocking_call_survives_an_expired_login_and_asks_for_it_once(
    project: Any, relay: Any, tmp_path: Path, wait_for: Any
) -> None:
    session = tmp_path / "session"
    session.touch()
    (tmp_path / "plugin.py").write_text(PLUGIN)
    plugin = {
        "apiVersion": "client.authentication.k8s.io/v1",
        "command": sys.executable,
        "args": [str(tmp_path / "plugin.py"), str(session)],
        "interactiveMode": "Never",
    }
    (project.root / "main.py").write_text(
        SCRIPT + "\nif __name__ == '__main__':\n    print('value', function('login'), flush=True)\n"
    )
    process = project.start(
        "main.py", environment={"KUBECONFIG": relay.kubeconfig(tmp_path, exec=plugin)}
    )
    errors: list[str] = []
    reader = threading.Thread(target=lambda: errors.extend(iter(process.stderr.readline, "")))
    reader.start()
    project.await_gate("login")

    session.unlink()
    relay.fail("", 401, "Unauthorized", times=100_000)
    relay.cut()
    wait_for(lambda: any("sso login" in line for line in errors) or process.poll() is not None)
    assert process.poll() is None, errors
    with relay.lock:
        relay.faults.clear()
    session.touch()
    project.pass_gate("login")
    out = process.stdout.read()
    reader.join()

    assert process.wait() == 0, "".join(errors)
    assert [line for line in out.splitlines() if line] == ["before", "after", "value 42"], errors
    assert "".join(errors).count("sso login") == 1, errors


def test_a_job_is_run_and_attached_to_by_the_name_of_its_cluster_without_a_kubeconfig(
    project: Any, bed: Any, authority: Any, tmp_path: Path
) -> None:
    with GkeServer(tmp_path / "gke", authority=authority, token="kube-bed-admin") as gke:
        ca = Path(bed.environment["KUBE_BED_CA"]).read_text()
        server = bed.environment["KUBE_BED_SERVER"]
        pool = {"name": "p", "initial_node_count": 1, "config": {"machine_type": "e2-standard-4"}}
        where = {"project": "p", "location": "us-east1"}
        gke.add("bed", **where, server=server, ca=ca, node_pools=[pool])
        place = {"KINETIC_PROJECT": "p", "KINETIC_ZONE": "us-east1", "KINETIC_CLUSTER": "bed"}
        project.variables = {**gke.environment, "KUBECONFIG": str(tmp_path / "none")}
        project.variables["KINETIC_KUBE_CONTEXT"] = ""
        job_id = project.script(
            SCRIPT + "\nif __name__ == '__main__':\n    print(function.run_async('name').job_id)\n",
            **place,
        ).split()[-1]
        project.await_gate("name")
        # Another machine knows the store alone: the record names the cluster.
        other = {"KINETIC_HOME": str(tmp_path / "other")}
        assert "RUNNING" in project.kinetic("jobs", "status", job_id, **other)
        project.pass_gate("name")
        value = f"import kinetic; print(kinetic.attach({job_id!r}).result())"
        assert project.script(textwrap.dedent(value), **other).split() == ["42"]

        wrong = project.run("-m", "kinetic_cli", "jobs", "list", **{**place, "KINETIC_ZONE": "us"})
        assert wrong.returncode == 1
        assert "A cluster of that name is in us-east1" in wrong.stdout + wrong.stderr
