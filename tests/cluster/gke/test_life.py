"""Jobs on a real cluster, as their users see them. A pod takes seconds, so each job shows several things."""

from __future__ import annotations

import json
import re
import signal
from pathlib import Path
from typing import Any

import pytest
import yaml

ROLES = Path(__file__).parents[3] / "docs" / "roles.yaml"
HEAD = """
import os, sys
import kinetic
from gates import gate
from pods import small

on_cluster = kinetic.run(
    "cpu", container_image=os.environ["IMAGE"], memory="128Mi", capture_env_vars=["TOKEN"],
    pod_overrides=small(),
)
"""
SUBMIT = """
if __name__ == "__main__":
    print(function.run_async().job_id)
"""
TOKEN = "a-secret-value"


def submit(project: Any, function: str, **environment: str) -> str:
    """Submit what *function* defines from a process of its own, and return the job's id."""
    return str(
        project.script(HEAD + function + SUBMIT, **{"TOKEN": TOKEN, **environment}).split()[-1]
    )


def test_a_job_is_followed_and_collected_from_another_home_and_leaves_only_its_log(
    project: Any, tmp_path: Path, wait_for: Any
) -> None:
    job_id = submit(
        project,
        """
@on_cluster
def function():
    print("first line", flush=True)
    gate("everywhere")
    sys.stderr.write("last line")
    return {"token": os.environ["TOKEN"][::-1], "large": b"x" * 300_000, "devices": os.environ["KINETIC_ACCELERATOR"]}
""",
    )
    follow = project.start("-m", "kinetic_cli", "jobs", "logs", job_id, "--follow")
    project.await_gate("everywhere")
    # From a second home: the key comes from the cluster.
    other = {"KINETIC_HOME": str(tmp_path / "other")}
    listed = json.loads(project.kinetic("jobs", "list", "--json", **other))
    status = project.kinetic("jobs", "status", job_id, **other)
    (job,) = project.objects("job", job_id)
    (pod,) = project.objects("pod", job_id)
    project.pass_gate("everywhere")
    out, err = follow.communicate()
    (project.root / "second.py").write_text(f'''
import kinetic
job = kinetic.attach("{job_id}")
value = job.result()
assert job.result() is value
print(job.status().value, value["token"], len(value["large"]), value["devices"])
''')
    result = project.run("second.py", **other)

    assert [(one["job_id"], one["status"]) for one in listed if one["job_id"] == job_id] == [
        (job_id, "RUNNING")
    ]
    assert "RUNNING" in status
    assert (out, err, follow.returncode) == ("first line\n", "last line\n", 0)
    assert result.stdout.split() == ["NOT_FOUND", TOKEN[::-1], "300000", "cpu"], result.stderr
    # Captured values are in a Secret only; the call is pinned by its digest.
    seen = json.dumps([job, pod]) + out + err + status
    assert TOKEN not in seen
    assert "--record-digest" in seen
    assert not any(
        TOKEN.encode() in project.bucket.read("jobs", name)
        for name in project.bucket.names("jobs")
        if job_id in name  # Those of others may be removed meanwhile.
    )
    assert project.kept(job_id) == []
    wait_for(lambda: not project.objects("job,pod,secret", job_id))
    kept = project.run("-m", "kinetic_cli", "jobs", "logs", job_id)
    assert (kept.stdout, kept.stderr) == ("first line\n", "last line\n")


def test_a_function_out_of_memory_fails_with_its_limit_and_what_to_try(
    project: Any,
) -> None:
    job_id = submit(
        project,
        """
@kinetic.run("cpu", container_image=os.environ["IMAGE"], memory="160Mi", pod_overrides=small())
def function():
    held = []
    while True:
        held.append(b"x" * 2**22)
""",
    )
    done = project.run("-m", "kinetic_cli", "jobs", "result", job_id)

    assert done.returncode == 1
    assert "the kernel ran out of memory" in done.stderr
    assert re.search(r"limit of the container is 160 Mi, .* used is 1[56]\d Mi", done.stderr)
    assert "try memory='256Mi'" in done.stderr


@pytest.fixture
def without_delete(project: Any, tmp_path: Path) -> str:
    """The kubeconfig of a user with the role of `docs/roles.yaml`, who may not delete JobSets."""
    role, _ = yaml.safe_load_all(ROLES.read_text())
    role["metadata"]["name"] = name = "kinetic-user-without-delete"
    (verbs,) = [rule["verbs"] for rule in role["rules"] if "jobsets" in rule["resources"]]
    verbs.remove("delete")
    there, user = ("-n", project.namespace), "eve@example.com"
    project.bed.kubectl("create", *there, "-f", "-", given=json.dumps(role))
    binding = ("rolebinding", name, f"--role={name}", f"--user={user}")
    project.bed.kubectl("create", *there, *binding)
    config = json.loads(Path(project.bed.kubeconfig).read_text())
    config["users"][0]["user"]["as"] = user
    path = tmp_path / "without-delete"
    path.write_text(json.dumps(config))
    return str(path)


def test_only_a_permitted_user_of_the_right_cluster_cancels_a_job(
    project: Any, relay: Any, without_delete: str
) -> None:
    job_id = submit(
        project,
        """
@on_cluster
def function():
    gate("right-cluster")
""",
    )
    project.await_gate("right-cluster")
    ask = f'''
import kinetic
job = kinetic.attach("{job_id}")
for call in (job.status, lambda: job.result(timeout=30), job.cancel, job.cleanup):
    try:
        print(call())
    except kinetic.KineticError as error:
        print(type(error).__name__)
'''
    (project.root / "ask.py").write_text(ask)
    # The same name of a context, and a cluster that has no such job.
    relay.namespaces[project.namespace] = "default"
    elsewhere = project.run(
        "ask.py", KUBECONFIG=relay.kubeconfig(project.root.parent), KINETIC_TRUST_BUCKET="1"
    )
    forbidden = project.run(
        "ask.py",
        KUBECONFIG=project.bed.environment["KUBE_BED_USER_KUBECONFIG"],
        KINETIC_KUBE_CONTEXT="kube-bed",
    )
    names = project.kept(job_id)
    refused = project.run("-m", "kinetic_cli", "jobs", "cancel", job_id, KUBECONFIG=without_delete)
    job, pod = project.objects("jobset,pod", job_id)
    undecided = f"{job_id}/outcome.json" not in project.kept(job_id)
    (project.root / "cancel.py").write_text(f'''
import kinetic
job = kinetic.attach("{job_id}")
job.cancel()
print(job.status().value)
try:
    job.result()
except kinetic.JobCancelledError as error:
    print("cancelled")
''')
    cancelled = project.run("cancel.py")
    left = project.objects("job,pod", job_id)

    job_error = ["JobError", "JobError", "SignatureError", "JobError"]
    assert elsewhere.stdout.split() == job_error, elsewhere.stderr
    assert forbidden.stdout.split() == ["ConfigurationError"] * 3 + ["NotPermittedError"]
    assert f"{job_id}/outcome.json" not in names
    assert refused.returncode == 1
    assert "permits 'delete' on 'jobsets.jobset.x-k8s.io'" in refused.stderr
    assert "The job keeps running, and cpu is still billed." in refused.stderr
    assert undecided  # Its value will count.
    assert pod["status"]["phase"] == "Running"
    assert all("deletionTimestamp" not in each["metadata"] for each in (job, pod))
    assert cancelled.stdout.split() == ["FAILED", "cancelled"], cancelled.stderr
    assert left == []


def test_a_disruption_costs_no_retry_and_the_log_continues(
    project: Any, look: Any, wait_for: Any
) -> None:
    job_id = submit(
        project,
        """
@kinetic.run(
    "cpu", container_image=os.environ["IMAGE"], memory="128Mi", retries=1, preemptions=1,
    pod_overrides=small(),
)
def function():
    attempt = int(os.environ["KINETIC_ATTEMPT"])
    print("attempt", attempt, flush=True)
    if attempt < 3:
        gate(f"attempt-{attempt}")
    if attempt == 2:
        raise ValueError("the only failure")
    return attempt
""",
    )
    follow = project.start("-m", "kinetic_cli", "jobs", "logs", job_id, "--follow")
    project.await_gate("attempt-1")
    first = follow.stdout.readline()  # It follows the first attempt.
    (pod,) = project.objects("pod", job_id)
    look.evict(evicted := pod["metadata"]["name"])
    # Between two pods the cluster shows nothing of a job that ran; that may be too short to be seen.
    wait_for(lambda: evicted not in [p["metadata"]["name"] for p in project.objects("pod", job_id)])
    between = project.kinetic("jobs", "status", job_id)
    project.pass_gate("attempt-2")
    value = project.kinetic("jobs", "result", job_id)
    out, err = follow.communicate()

    assert between.split()[1] in ("RUNNING", "PENDING")
    assert value.split()[-1] == "3"
    printed = [line for line in (first + out).splitlines() if line.startswith("attempt")]
    assert printed == ["attempt 1", "attempt 2", "attempt 3"], out + err


def test_sigterm_lets_function_and_child_processes_save_before_the_last_preemption_ends_the_job(
    project: Any, look: Any
) -> None:
    job_id = submit(
        project,
        """
import signal, subprocess
from kinetic_payload.stores import open_store
from kinetic_payload.stores.store import parse_location

@kinetic.run(
    "cpu", container_image=os.environ["IMAGE"], memory="128Mi", preemptions=0, pod_overrides=small(),
)
def function():
    if os.environ["KINETIC_ATTEMPT"] != "1":
        return "ran again"
    helper = subprocess.Popen(["cat"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def save(*_):
        saved, _ = helper.communicate(b"by the helper")
        outputs = open_store(parse_location(os.environ["KINETIC_OUTPUT_DIR"]))
        outputs.write("saved", saved + b", which ended with %d" % helper.returncode)
        sys.exit()

    signal.signal(signal.SIGTERM, save)
    gate("sigterm")
""",
    )
    project.await_gate("sigterm")
    (pod,) = project.objects("pod", job_id)
    look.evict(pod["metadata"]["name"])
    ended = project.script(f"""
import kinetic
job = kinetic.attach("{job_id}")
try:
    print(job.result())
except kinetic.JobFailedError as error:
    print(error)
print(job.status().value, [(host.attempt, host.reason) for host in job.outcome().hosts])
""")

    saved = project.bucket.read("jobs", f"outputs/{job_id}/saved")
    assert saved == b"by the helper, which ended with 0"
    assert "failed: Preempted once; preemptions=0 allows 0." in ended
    assert ended.splitlines()[-1] == "FAILED [(1, 'terminated')]"


@pytest.mark.parametrize(
    ("kind", "reason", "hidden"),
    [
        ("jobset", "There is no JobSet", set()),
        ("pod", "called sys.exit(143)", set()),
        ("pod", "called sys.exit(143)", {"jobset.x-k8s.io"}),
    ],
)
def test_a_deleted_job_fails_and_a_deleted_pod_is_replaced_unlike_one_that_exits_as_it_did(
    project: Any, relay: Any, kind: str, reason: str, hidden: set[str]
) -> None:
    relay.hidden |= hidden
    project.variables["KUBECONFIG"] = relay.kubeconfig(project.root.parent)
    function = f"""
@on_cluster
def function():
    if os.environ["KINETIC_ATTEMPT"] == "1":
        gate("deleted-{kind}{len(hidden)}")
    sys.exit(143)
"""
    job_id = submit(project, function)
    wait = project.start("-m", "kinetic_cli", "jobs", "result", job_id)
    project.await_gate(f"deleted-{kind}{len(hidden)}")
    (found,) = project.objects(kind, job_id)
    path = project.bed.path_of(kind, project.namespace, found["metadata"]["name"])
    project.bed.ask("DELETE", path, propagationPolicy="Background")
    _, err = wait.communicate()

    assert wait.returncode == 1
    assert reason in err


def test_ctrl_c_during_the_creation_of_a_job_leaves_nothing(
    project: Any, relay: Any, wait_for: Any
) -> None:
    def jobs() -> set[str]:
        """The names of Jobs that are there, or of which pods are."""
        found = project.bed.objects("job,pod", project.namespace, "app=kinetic")
        name = "batch.kubernetes.io/job-name"
        return {each["metadata"]["labels"].get(name, each["metadata"]["name"]) for each in found}

    # Failed jobs of tests that ran before in this namespace are still there.
    before, jobs_before = set(project.bucket.names("jobs")), jobs()
    relay.hold = ("POST", "secrets")
    # Its key is made before: what is held is the Secret of the captured values.
    project.kinetic("jobs", "list")
    (project.root / "main.py").write_text(
        HEAD
        + """
@on_cluster
def function():
    pass
"""
        + SUBMIT
    )
    process = project.start(
        "main.py", environment={"KUBECONFIG": relay.kubeconfig(project.root.parent), "TOKEN": TOKEN}
    )
    assert relay.held.wait(240)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate()

    assert process.returncode != 0
    assert "KeyboardInterrupt" in err
    left = {name for name in set(project.bucket.names("jobs")) - before if "/handle" in name}
    assert left == set()
    wait_for(lambda: jobs() <= jobs_before)
