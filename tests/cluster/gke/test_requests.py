"""How many requests a job takes, and what happens when the API server does not respond for a while."""

from __future__ import annotations

import json
import secrets
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pods import small

from kinetic.job_status import JobStatus
from kinetic.jobs.status import explained, look
from kinetic.testing import RegisteredClient, ServicesClient, users_project
from kinetic_payload.testing.gcs import GcsServer


@pytest.fixture
def client(
    bed: Any,
    relay: Any,
    namespace: str,
    image: str,
    bucket: GcsServer,
    tmp_path: Path,
    warm: Callable[[Path], Path],
    monkeypatch: pytest.MonkeyPatch,
    slice_of_two: str,
    priority: str,
) -> Iterator[ServicesClient]:
    """A client whose requests to the API server are counted, and can fail."""
    config = json.loads(Path(bed.kubeconfig).read_text())
    config["clusters"][0]["cluster"] = {"server": relay.url}
    (tmp_path / "kubeconfig").write_text(json.dumps(config))
    variables = {
        **bucket.environment,
        "KUBECONFIG": str(tmp_path / "kubeconfig"),
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


def test_a_warm_submit_and_a_status_take_few_requests(
    client: ServicesClient, relay: Any, bucket: GcsServer
) -> None:
    full = {"memory": "400Gi"}  # Its pods never run.
    client.submit(client.functions.wait, 1, options=full)
    relay.requests.clear()
    before = len(bucket.requests)
    job = client.submit(client.functions.wait, 2, options=full)
    submit, stored = list(relay.requests), list(bucket.requests)[before:]
    relay.requests.clear()
    view = look(job._record, client.services)
    status = list(relay.requests)
    relay.requests.clear()
    why = explained(job._record, view, client.services)
    diagnosis = list(relay.requests)

    # One of them checks the fields of the user in a Job.
    assert len(submit) <= 7, submit
    assert len(stored) <= 6, [(one.method, one.path) for one in stored]
    assert view.status is JobStatus.PENDING
    assert len(status) <= 2, status
    assert "memory" in why
    assert len(diagnosis) <= 2, diagnosis


def test_a_wait_survives_a_dropped_watch_a_lost_answer_and_a_server_that_is_away(
    client: ServicesClient, relay: Any, wait_for: Callable[..., Any]
) -> None:
    relay.lose("POST /apis/jobset.x-k8s.io/v1alpha2/namespaces/")
    job = client.submit(client.functions.wait, 3)
    found: list[Any] = []
    waiting = threading.Thread(target=lambda: found.append(job.result()), daemon=True)
    waiting.start()
    lines = threading.Thread(
        target=lambda: found.append(list(job.log_lines(follow=True))), daemon=True
    )
    lines.start()
    wait_for(lambda: client.outputs(job, "begun"))
    for _ in range(3):
        relay.cut()
        threading.Event().wait(1)
    relay.fail("/", 503, "away", times=40)
    client.put(job, "go")
    waiting.join(120)
    lines.join(120)

    value, log = sorted(found, key=lambda one: isinstance(one, list))
    assert value == 3
    for host in (0, 1):
        # Kinetic's own lines report what the hosts wait for.
        texts = [line.text for line in log if line.host == host]
        assert sorted(text for text in texts if "[kinetic]" not in text) == ["done", "waiting"]
