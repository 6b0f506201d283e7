"""Cloud Build for tests refuses what the service refuses, and runs what it accepts."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Iterator
from typing import Any

import grpc
import pytest
import urllib3
from google.api_core import exceptions
from google.cloud.devtools import cloudbuild_v1
from google.cloud.devtools.cloudbuild_v1.services.cloud_build.transports import (
    CloudBuildGrpcTransport,
)

from kinetic_servers.cloud_build import (
    CloudBuildServer,
    PythonSteps,
    Step,
)
from kinetic_servers.cloud_build.validation import invalid, replaced
from kinetic_servers.gcs import GcsServer

STEP = {"name": "tool", "args": ["a"]}
SECRET = {"version_name": "projects/p/secrets/s/versions/latest", "env": "A"}


def sharing(*volumes: tuple[str, str]) -> dict[str, Any]:
    """Return a build whose two steps have the same volumes."""
    step = {**STEP, "volumes": [{"name": name, "path": path} for name, path in volumes]}
    return {"steps": [step, step]}


@pytest.fixture
def buckets() -> Iterator[GcsServer]:
    """A bucket server with a bucket."""
    with GcsServer() as server:
        server.create_bucket("bucket")
        yield server


def client_of(server: CloudBuildServer) -> Any:
    """Return Google's client for *server*."""
    channel = grpc.insecure_channel(server.endpoint.removeprefix("http://"))
    return cloudbuild_v1.CloudBuildClient(transport=CloudBuildGrpcTransport(channel=channel))


def a_build(**fields: Any) -> Any:
    """Return a valid build."""
    return cloudbuild_v1.Build({"steps": [STEP], "logs_bucket": "gs://bucket/logs", **fields})


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({}, None),
        ({"steps": []}, "at least one step"),
        ({"steps": [{"args": ["x"]}]}, "must specify name"),
        ({"steps": [{**STEP, "args": ["x"] * 101}]}, "too many args"),
        ({"steps": [{**STEP, "args": ["x" * 10_001]}]}, "arg is too long"),
        ({"steps": [{**STEP, "env": ["A"]}]}, "not KEY=VALUE"),
        ({"steps": [{**STEP, "secret_env": ["A"]}]}, "'A' of step 0 is not defined"),
        (
            {
                "steps": [{**STEP, "secret_env": ["A"]}],
                "available_secrets": {"secret_manager": [{**SECRET, "version_name": "s"}]},
            },
            "invalid secret version name 's'",
        ),
        (
            {"available_secrets": {"secret_manager": [SECRET]}},
            "'A' must be unique, and used by at least one build step",
        ),
        (sharing(("login", "/login")), None),
        (sharing(("login", "login")), "not absolute, or reserved"),
        (sharing(("login", "/workspace/login")), "not absolute, or reserved"),
        (sharing(("login", "/a"), ("login", "/b")), "unique names and paths"),
        (sharing(("a", "/a"), ("b", "/a/")), "unique names and paths"),
        (sharing(("no name", "/a")), "invalid volume name"),
        ({"steps": sharing(("login", "/login"))["steps"][:1]}, "only used by one step"),
        ({"steps": [{**STEP, "args": ["$NAME"]}]}, "not a valid built-in substitution"),
        ({"steps": [{**STEP, "args": ["$$NAME $name $PROJECT_ID"]}]}, None),
        ({"steps": [{**STEP, "args": ["$_MINE"]}], "substitutions": {"_MINE": "1"}}, None),
        ({"source": {"storage_source": {"bucket": "b"}}}, "must have a bucket and an object"),
        ({"images": ["Host/Upper"]}, "invalid image name"),
        ({"tags": ["no spaces"]}, "invalid tag"),
        ({"timeout": "90000s"}, "too long"),
        ({"logs_bucket": "b"}, "invalid logs bucket"),
        ({"service_account": "me@x.test"}, "invalid service account"),
        (
            {"service_account": "projects/p/serviceAccounts/me@x.test", "logs_bucket": ""},
            "the build must either",
        ),
    ],
)
def test_a_build_that_the_service_refuses_is_refused(
    fields: dict[str, Any], problem: str | None
) -> None:
    found = invalid(a_build(**fields), {"PROJECT_ID": "p"})

    assert found is None if problem is None else problem in str(found)


def test_variables_are_replaced_once() -> None:
    variables = {"PROJECT_ID": "$$p", "_X": "x"}

    assert replaced("$PROJECT_ID ${_X} $$_X $(run) $lower", variables) == "$$p x $_X $(run) $lower"


def test_a_build_runs_its_steps_in_the_source_and_ends_its_operation(buckets: GcsServer) -> None:
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w:gz") as archive:
        entry = tarfile.TarInfo("folder/file")
        entry.size = 2
        archive.addfile(entry, io.BytesIO(b"hi"))
    url = f"{buckets.endpoint}/upload/storage/v1/b/bucket/o?uploadType=media&name=s.tar.gz"
    assert urllib3.request("POST", url, body=stream.getvalue()).status == 200
    ran: list[Step] = []

    def tool(step: Step) -> int:
        ran.append(step)
        step.write((step.folder / "file").read_text() + "\n")
        return 0

    with CloudBuildServer(buckets.endpoint, PythonSteps({"tool": tool})) as server:
        build = a_build(
            source={"storage_source": {"bucket": "bucket", "object_": "s.tar.gz"}},
            steps=[
                {**STEP, "dir_": "folder", "env": ["P=$PROJECT_ID"]},
                {**STEP, "dir_": "folder"},
            ],
            images=["host.test/x:1"],
        )
        client = client_of(server)
        done = client.create_build(project_id="test-project", build=build).result(timeout=20)
        log = buckets.read("bucket", f"logs/log-{done.id}.txt").decode()

    assert done.status.name == "SUCCESS"
    assert done.results.images[0].digest.startswith("sha256:")
    assert ran[0].environment == {"P": "test-project"}
    assert "Step #0: hi\n" in log
    assert log.endswith("Pushing host.test/x:1\nDONE\n")


def test_a_failure_is_that_of_the_operation_too(buckets: GcsServer) -> None:
    with CloudBuildServer(buckets.endpoint, PythonSteps({"tool": lambda step: 3})) as server:
        client = client_of(server)
        operation = client.create_build(project_id="test-project", build=a_build())
        with pytest.raises(exceptions.InvalidArgument):
            operation.result(timeout=20)
        (found,) = client.list_builds(project_id="test-project", filter='tags=""')
        with pytest.raises(exceptions.FailedPrecondition):
            client.cancel_build(project_id="test-project", id=found.id)
        with pytest.raises(exceptions.NotFound):
            client.get_build(project_id="test-project", id="none")

    assert found.failure_info.type_.name == "USER_BUILD_STEP"
    assert found.steps[0].exit_code == 3
