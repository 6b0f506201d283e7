"""A job and what it needs, created on a real cluster."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from kinetic.testing import eventually
from kinetic_k8s.accelerators import parse_accelerator
from kinetic_k8s.cluster.client import ApiServer
from kinetic_k8s.cluster.creation import Runner, check_workload, create_workload, ensure_key
from kinetic_k8s.errors import AlreadyExistsError, RefusedError
from kinetic_k8s.manifests.job import JobSpec
from kinetic_k8s.manifests.jobset import JobSetSpec
from kinetic_k8s.manifests.names import KEY_IN_SECRET, KEY_SECRET, environment_secret_name
from kinetic_k8s.manifests.pod import MountedFile, SecretVariable, pod_template

PROGRAM = b"""
import json, os, sys
with open("/kinetic/workspace/file", "w") as file:
    file.write("can be written")
json.dump([sys.argv[1:], {name: os.environ[name] for name in ("PLAIN", "SECRET", "KEY")},
           os.statvfs("/dev/shm").f_blocks * os.statvfs("/dev/shm").f_frsize], sys.stdout)
"""
RUNNER = Runner(
    digest=hashlib.sha256(PROGRAM).hexdigest(), name="remote_runner.py", content=PROGRAM
)

OTHER_RUNNER = Runner(
    digest=hashlib.sha256(PROGRAM * 2).hexdigest(), name="remote_runner.py", content=PROGRAM * 2
)


def with_everything(spec: JobSpec) -> JobSpec:
    """Return *spec* as a job that prints what reached its container."""
    pod = replace(
        spec.pod,
        command=("python3", "-u", "/app/remote_runner.py", "$(HOME)"),
        environment={"PLAIN": "a$(HOME)b$$c"},
        environment_secret=environment_secret_name(spec.name),
        secret_variables=(SecretVariable(variable="KEY", secret=KEY_SECRET, key=KEY_IN_SECRET),),
        files=(
            MountedFile(
                config_map=RUNNER.config_map, key=RUNNER.name, path="/app/remote_runner.py"
            ),
        ),
        resources=replace(spec.pod.resources, shared_memory="8Mi"),
    )
    return replace(spec, pod=pod)


def test_runner_captured_values_and_key_reach_the_container_unchanged(
    cluster: ApiServer, a_job: Callable[..., JobSpec], look: Any
) -> None:
    key = ensure_key(cluster, lambda: b"k" * 32)
    spec = with_everything(a_job(""))

    create_workload(cluster, spec, environment={"SECRET": "two\nlines $(HOME)"}, runner=RUNNER)
    look.wait(spec, "Complete")

    arguments, values, shared = json.loads(
        look.bed.kubectl("logs", f"job/{spec.name}", "-n", look.namespace)
    )
    assert arguments == ["$(HOME)"]
    assert values == {"PLAIN": "a$(HOME)b$$c", "SECRET": "two\nlines $(HOME)", "KEY": key.hex()}
    assert shared == 8 * 1024 * 1024


def test_an_existing_job_is_not_replaced(cluster: ApiServer, a_job: Callable[..., JobSpec]) -> None:
    spec = a_job("import time; time.sleep(60)")
    first = create_workload(cluster, spec)

    with pytest.raises(AlreadyExistsError):
        create_workload(cluster, spec)

    assert cluster.get("Job", spec.name)["metadata"]["uid"] == first["metadata"]["uid"]
    cluster.delete("Job", spec.name)


def test_a_shared_runner_is_removed_with_its_last_job(
    cluster: ApiServer, a_job: Callable[..., JobSpec], look: Any
) -> None:
    first, second = a_job("pass"), a_job("pass")
    for spec in (first, second):
        create_workload(cluster, spec, runner=OTHER_RUNNER)
    shared = cluster.get("ConfigMap", OTHER_RUNNER.config_map)["metadata"]

    assert {owner["name"] for owner in shared["ownerReferences"]} == {first.name, second.name}
    cluster.delete("Job", first.name)
    create_workload(cluster, third := a_job("pass"), runner=OTHER_RUNNER)
    assert cluster.get("ConfigMap", OTHER_RUNNER.config_map)["metadata"]["uid"] == shared["uid"]
    for spec in (second, third):
        cluster.delete("Job", spec.name)
    gone = ("wait", "--for=delete", f"configmap/{OTHER_RUNNER.config_map}", "--timeout=60s")
    look.bed.kubectl(*gone, "-n", look.namespace)


def test_an_older_version_of_jobset_gets_fewer_rules_and_one_warning(
    relay: Any, relayed: ApiServer, a_job: Callable[..., JobSpec]
) -> None:
    job = a_job("pass", accelerator=parse_accelerator("v4-8"))
    # Fields of the user would be checked in a further request.
    spec = JobSetSpec(name=job.name, pod=replace(job.pod, overrides={}), retries=1, suspended=True)
    # Recorded from a JobSet that got another unknown field.
    field = "spec.failurePolicy.rules[0].onJobFailureMessagePatterns"
    refusal = (
        'JobSet in version "v1alpha2" cannot be handled as a JobSet: strict decoding error: '
        f'unknown field "{field}"'
    )
    relay.fail("POST", 400, refusal, reason="BadRequest")
    warnings: list[str] = []

    check_workload(relayed, spec, notify=warnings.append)
    found = create_workload(relayed, spec, notify=warnings.append)

    assert [rule["name"] for rule in found["spec"]["failurePolicy"]["rules"]] == ["uncounted"]
    assert len(warnings) == 1
    assert "no rules on exit codes" in warnings[0]
    assert [request.partition("?")[0].split()[0] for request in relay.requests] == ["POST"] * 3
    relayed.delete("JobSet", spec.name)


def test_root_may_change_owners_and_users_and_has_no_other_privilege(
    cluster: ApiServer, a_job: Callable[..., JobSpec], look: Any
) -> None:
    program = """
import os, subprocess
os.chdir("/kinetic/workspace")
open("file", "w").close()
os.chown("file", 1000, 1000)
os.chmod("file", 0o600)
subprocess.run(["tar", "cf", "archive", "--owner=1000", "file"], check=True)
subprocess.run(["tar", "xf", "archive"], check=True)
for privilege in (lambda: os.chroot("/"), lambda: os.mknod("node", 0o20600, os.makedev(1, 3))):
    try:
        privilege()
    except PermissionError:
        continue
    raise SystemExit("not refused")
os.setgid(1000)
os.setuid(1000)
"""
    create_workload(cluster, spec := a_job(program))

    look.wait(spec, "Complete")


def test_pods_fit_the_baseline_of_pod_security_and_by_overrides_the_restricted_policy(
    cluster: ApiServer, a_job: Callable[..., JobSpec], look: Any
) -> None:
    name = "pod-security.kubernetes.io/enforce"
    spec = a_job("pass")
    no_root = {
        "securityContext": {"runAsNonRoot": True, "runAsUser": 1000},
        "containers": [{"name": "kinetic", "securityContext": {"capabilities": {"add": None}}}],
    }

    def check(policy: str, **overrides: Any) -> None:
        template = pod_template(replace(spec.pod, overrides=overrides))
        template["metadata"]["name"] = spec.name
        look.bed.kubectl("label", "namespace", look.namespace, f"{name}={policy}", "--overwrite")
        cluster.create({"apiVersion": "v1", "kind": "Pod", **template}, dry_run=True)

    def refusal(policy: str) -> str:
        try:
            check(policy)
        except RefusedError as error:
            return error.message
        return ""

    try:
        check("baseline")
        # The server notices a label a moment later.
        refused = eventually(lambda: refusal("restricted"), every=0.2)
        assert "runAsNonRoot" in refused
        check("restricted", spec=no_root)
    finally:
        look.bed.kubectl("label", "namespace", look.namespace, f"{name}-")
