"""How many requests a job takes, and what happens when the API server does not respond for a while."""

from __future__ import annotations

import asyncio
import secrets
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pods import small

import kinetic
from kinetic.errors import SignatureError
from kinetic.job_status import JobStatus
from kinetic.jobs.discover import statuses_of
from kinetic.jobs.status import explained, look
from kinetic.testing import RegisteredClient, users_project
from kinetic_k8s.manifests.names import KEY_IN_SECRET, KEY_SECRET
from kinetic_payload.records.signing import KEY_SIZE
from kinetic_servers.clients import ServicesClient
from kinetic_servers.gcs import GcsProcess


@pytest.fixture
def client(
    relay: Any,
    namespace: str,
    image: str,
    bucket: GcsProcess,
    tmp_path: Path,
    warm: Callable[[Path], Path],
    monkeypatch: pytest.MonkeyPatch,
    slice_of_two: str,
    priority: str,
) -> Iterator[ServicesClient]:
    """A client whose requests to the API server are counted, and can fail."""
    variables = {
        **bucket.environment,
        "KUBECONFIG": relay.kubeconfig(tmp_path),
        "KINETIC_HOME": str(warm(tmp_path / "home")),
        "KINETIC_KUBE_CONTEXT": "kube-bed",
        "KINETIC_NAMESPACE": namespace,
        "KINETIC_STORE": f"gs://jobs/{secrets.token_hex(4)}",
        "JAX_PLATFORMS": "cpu",
        "PRIORITY": priority,
    }
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    options: dict[str, Any] = {
        "backend": "gke",
        "container_image": image,
        "memory": "128Mi",
        "capture_env_vars": ["JAX_*"],
        "pod_overrides": small(),
    }
    services = RegisteredClient(**options).services
    with users_project(tmp_path / "project") as functions:
        client = ServicesClient(services, accelerator=slice_of_two, **options)
        client.functions = functions
        yield client
        client.close()


@pytest.fixture
def program(client: ServicesClient) -> Iterator[RegisteredClient]:
    """A program that calls `kinetic.run`, which connects for each job."""
    program = RegisteredClient(**client._options)
    yield program
    program.close()


def test_a_warm_submit_and_a_status_take_few_requests(
    client: ServicesClient,
    program: RegisteredClient,
    relay: Any,
    bucket: GcsProcess,
    wait_for: Callable[..., Any],
) -> None:
    full = {"memory": "400Gi"}  # Its pods never run.
    program.submit(client.functions.wait, 1, options=full)
    relay.requests.clear()
    bucket.clear_requests()
    job = program.submit(client.functions.wait, 2, options=full)
    submit, stored = list(relay.requests), bucket.requests()
    wait_for(
        lambda: (
            "memory" in explained(job._record, look(job._record, client.services), client.services)
        )
    )
    relay.requests.clear()
    view = look(job._record, client.services)
    status = list(relay.requests)
    relay.requests.clear()
    why = explained(job._record, view, client.services)
    diagnosis = list(relay.requests)

    # The pools, the key, the runner, the JobSet, its Secret, and twice again the runner, which it then owns, too.
    # If the API server was slow, the JobSet was created suspended, and one more request resumes it.
    resumed = sum(request.startswith("PATCH /apis/jobset.x-k8s.io/") for request in submit)
    assert len(submit) - resumed <= 7, submit
    assert len(stored) <= 6, [(one.method, one.path) for one in stored]
    assert view.status is JobStatus.PENDING
    assert len(status) <= 2, status
    assert "memory" in why
    assert len(diagnosis) <= 2, diagnosis


def test_a_list_of_jobs_with_statuses_lists_each_kind_of_object_once(
    client: ServicesClient, program: RegisteredClient, relay: Any
) -> None:
    job = program.submit(client.functions.wait, 1, options={"memory": "400Gi"})
    relay.requests.clear()
    jobs = kinetic.list_jobs()
    statuses = statuses_of(jobs)

    listed = [each.partition("?")[0].rpartition("/")[2] for each in relay.requests]
    assert sorted(set(listed) - {KEY_SECRET}) == ["jobs", "jobsets", "leaderworkersets", "pods"]
    assert len(listed) == len(set(listed)), listed
    assert dict(zip([each.job_id for each in jobs], statuses, strict=True)) == {
        job.job_id: JobStatus.PENDING
    }


def test_a_warm_submit_signs_with_the_current_key(
    client: ServicesClient, program: RegisteredClient, bed: Any, namespace: str
) -> None:
    full = {"memory": "400Gi"}
    before = program.submit(client.functions.wait, 1, options=full)
    bed.kubectl("delete", "secret", KEY_SECRET, "-n", namespace)
    made = program.submit(client.functions.wait, 2, options=full)
    other = f"--from-literal={KEY_IN_SECRET}={secrets.token_hex(KEY_SIZE)}"
    bed.kubectl("delete", "secret", KEY_SECRET, "-n", namespace)
    bed.kubectl("create", "secret", "generic", KEY_SECRET, other, "-n", namespace)
    replaced = program.submit(client.functions.wait, 3, options=full)

    assert kinetic.attach(replaced.job_id).status() is JobStatus.PENDING
    for job in (before, made):
        with pytest.raises(SignatureError):
            kinetic.attach(job.job_id).status()


def test_waits_survive_short_watches_a_lost_response_and_an_outage(
    client: ServicesClient, relay: Any, wait_for: Callable[..., Any]
) -> None:
    relay.stream_seconds = 1.0
    relay.lose("POST /apis/jobset.x-k8s.io/v1alpha2/namespaces/")
    job = client.submit(client.functions.wait, 3)

    async def awaited() -> Any:
        return await job

    found: list[Any] = []
    waits = (
        job.result,
        lambda: asyncio.run(awaited()),
        lambda: list(job.log_lines(follow=True)),
    )
    waiting = [
        threading.Thread(target=lambda wait=wait: found.append(wait()), daemon=True)
        for wait in waits
    ]
    for thread in waiting:
        thread.start()
    wait_for(lambda: client.outputs(job, "begun"))
    threading.Event().wait(5)  # The pauses between two watches grow.
    before = len(relay.requests)
    threading.Event().wait(10)
    asked = relay.requests[before:]
    relay.fail("/", 503, "away", times=15)
    client.put(job, "go")
    for thread in waiting:
        thread.join(120)

    log, *values = sorted(found, key=lambda one: isinstance(one, int))
    assert values == [3, 3]
    # Three readers watch two kinds each, and one follows two logs.
    assert len(asked) <= 40, asked
    for host in (0, 1):
        # Kinetic's own lines report what the hosts wait for.
        texts = [line.text for line in log if line.host == host]
        assert [text for text in texts if "[kinetic]" not in text] == ["waiting", "done"]
