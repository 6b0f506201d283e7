"""Jobs that a process in a pod submits to its own cluster."""

from __future__ import annotations

import json
import sysconfig
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

REPOSITORY = Path(__file__).parents[3]
SITE_PACKAGES = sysconfig.get_path("purelib")
PATHS = [*map(str, sorted(REPOSITORY.glob("packages/*/src"))), SITE_PACKAGES]
ACCOUNT = "submitter"
MAIN = """
import os, kinetic
from pods import small

@kinetic.run("cpu", container_image=os.environ["IMAGE"], memory="128Mi", pod_overrides=small())
def function(word):
    print("in a pod of its own", flush=True)
    return word, os.uname().nodename

if __name__ == "__main__":
    job = function.run_async("value")
    print(job.job_id)
    print(*job.result(stream_logs=True))
"""


@pytest.fixture
def own_namespace(bed: Any) -> Iterator[str]:
    """A namespace with the role of `docs/roles.yaml`, which a service account has."""
    with bed.new_namespace() as name:
        bed.kubectl("apply", "-n", name, "-f", str(REPOSITORY / "docs" / "roles.yaml"))
        bed.kubectl("create", "serviceaccount", ACCOUNT, "-n", name)
        account = f"--serviceaccount={name}:{ACCOUNT}"
        role = ("--role=kinetic-user", account)
        bed.kubectl("create", "rolebinding", "kinetic-users", "-n", name, *role)
        yield name


def test_a_pod_submits_a_job_to_its_own_cluster_and_gets_its_value(
    project: Any, own_namespace: str
) -> None:
    project.namespace = own_namespace
    (project.root / "main.py").write_text(MAIN)
    inside = ("STORAGE_EMULATOR_HOST", "KINETIC_BACKEND", "KINETIC_STORE", "IMAGE")
    variables = {name: project.environment[name] for name in inside}
    variables |= {"PYTHONPATH": ":".join(PATHS), "KINETIC_HOME": "/tmp/home"}
    folders = dict(enumerate([str(project.root), *PATHS]))
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "submitter"},
        "spec": {
            "serviceAccountName": ACCOUNT,
            "restartPolicy": "Never",
            "containers": [
                {
                    "name": "submitter",
                    "resources": {"requests": {"cpu": "200m"}},
                    "image": project.image,
                    "command": ["python3", "main.py"],
                    "workingDir": str(project.root),
                    "env": [{"name": name, "value": text} for name, text in variables.items()],
                    "volumeMounts": [
                        {"name": f"folder-{n}", "mountPath": path, "readOnly": True}
                        for n, path in folders.items()
                    ],
                }
            ],
            "volumes": [
                {"name": f"folder-{n}", "hostPath": {"path": path}} for n, path in folders.items()
            ],
        },
    }
    there = ("-n", own_namespace)
    project.bed.kubectl("create", *there, "-f", "-", given=json.dumps(pod))

    ended = "--for=jsonpath={.status.containerStatuses[0].state.terminated.reason}"
    project.bed.kubectl("wait", "pod/submitter", *there, ended, "--timeout=240s")
    said = project.bed.kubectl("logs", "submitter", *there)

    assert "\nin a pod of its own\nvalue kn-function-" in said, said
    job_id = said.splitlines()[-3]
    assert project.kept(job_id) == []
    assert project.objects("job,pod", job_id) == []
