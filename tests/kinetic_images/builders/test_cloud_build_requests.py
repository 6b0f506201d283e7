"""The requests for builds are those that are kept beside this file."""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from kinetic_images.builders.cloud_build import CloudBuildSettings, RegistryLogin
from kinetic_images.builders.cloud_build.request import build_request
from kinetic_images.builders.cloud_build.settings import secret_version
from kinetic_images.builders.dockerfile.container_build import ContainerBuild
from kinetic_images.builders.dockerfile.context import BuildContext, ContextFile
from kinetic_images.errors import BuildInputError
from kinetic_payload.stores.store import Location

GOLDEN = Path(__file__).parent / "golden"
PLAIN = CloudBuildSettings(project="my-project")
FULL = CloudBuildSettings(
    project="my-project",
    region="europe-west4",
    service_account="builder@my-project.iam.gserviceaccount.com",
    timeout=timedelta(minutes=10),
    secret_versions={
        "netrc": "projects/my-project/secrets/netrc/versions/3",
        "ca": "projects/my-project/secrets/ca/versions/latest",
    },
)

LOGIN = CloudBuildSettings(
    project="my-project",
    registry_login=RegistryLogin(
        host="docker.io",
        user="me",
        secret_version="projects/my-project/secrets/hub/versions/latest",
    ),
)


def request(
    settings: CloudBuildSettings,
    bucket: str = "builds",
    token_hosts: tuple[str, ...] = (),
    **fields: Any,
) -> dict[str, Any]:
    """Return a request with *settings*."""
    build = ContainerBuild(
        **{
            "context": BuildContext({"Dockerfile": ContextFile(b"FROM scratch\n")}),
            "image": "europe-west4-docker.pkg.dev/my-project/kn/bundled:0123abc",
            "platform": "linux/amd64",
            "labels": {"note": "costs $5 or ${MORE}"},
            **fields,
        }
    )
    return build_request(
        build,
        "builds/contexts/0a1b.tar.gz",
        Location("gs", bucket),
        settings,
        mark="kinetic-77",
        token_hosts=token_hosts,
    )


@pytest.mark.parametrize(
    ("name", "made"),
    [
        ("plain", request(PLAIN)),
        ("token", request(FULL, "shared/team", token_hosts=("us-python.pkg.dev",))),
        ("login", request(LOGIN, image="docker.io/team/base-cpu:0123abc")),
    ],
)
def test_a_request_is_the_one_that_was_reviewed(name: str, made: dict[str, Any]) -> None:
    path = GOLDEN / f"cloud_build_{name}.json"
    assert json.loads(path.read_text()) == made, json.dumps(made, indent=2)


def test_a_fresh_build_uses_no_results_of_earlier_ones() -> None:
    (step,) = request(PLAIN, fresh=True)["steps"]

    assert {"--pull", "--no-cache"} <= set(step["args"])
    assert not any("--cache-from" in word for word in step["args"])


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ("kinetic-netrc", "projects/my-project/secrets/kinetic-netrc/versions/latest"),
        ("projects/p/secrets/s/versions/3", "projects/p/secrets/s/versions/3"),
        ("projects/p/secrets/s", None),
        ("machine host login me password pa55", None),
    ],
)
def test_a_secret_is_named_and_never_written(text: str, version: str | None) -> None:
    if version is not None:
        assert secret_version(text, "my-project") == version
        return
    with pytest.raises(BuildInputError) as caught:
        secret_version(text, "my-project")
    assert text not in str(caught.value)
