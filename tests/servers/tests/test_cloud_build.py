"""Cloud Build for tests refuses what the service refuses."""

from __future__ import annotations

from typing import Any

import pytest
from google.cloud.devtools import cloudbuild_v1

from kinetic_servers.cloud_build.validation import invalid, replaced

STEP = {"name": "tool", "args": ["a"]}
SECRET = {"version_name": "projects/p/secrets/s/versions/latest", "env": "A"}
VOLUME = {**STEP, "volumes": [{"name": "login", "path": "/login"}]}
READS = {**STEP, "secret_env": ["A"]}


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({}, None),
        ({"steps": [READS]}, "'A' is not defined"),
        ({"steps": [READS], "available_secrets": {"secret_manager": [{**SECRET, "version_name": "s"}]}}, "secret version name 's'"),
        ({"available_secrets": {"secret_manager": [SECRET]}}, "used by at least one build step"),
        ({"steps": [VOLUME, VOLUME]}, None),
        ({"steps": [VOLUME]}, "only used by one step"),
        ({"steps": [{**STEP, "args": ["$NAME"]}]}, "not a valid built-in substitution"),
        ({"steps": [{**STEP, "args": ["$$NAME $name $PROJECT_ID"]}]}, None),
        ({"tags": ["no spaces"]}, "invalid tag"),
        ({"service_account": "projects/p/serviceAccounts/me@x.test", "logs_bucket": ""}, "the build must either"),
    ],
)  # fmt: skip
def test_a_build_that_the_service_refuses_is_refused(
    fields: dict[str, Any], problem: str | None
) -> None:
    build = cloudbuild_v1.Build({"steps": [STEP], "logs_bucket": "gs://bucket/logs", **fields})
    found = invalid(build, {"PROJECT_ID": "p"})

    assert found is None if problem is None else problem in str(found)


def test_variables_are_replaced_once() -> None:
    variables = {"PROJECT_ID": "$$p", "_X": "x"}

    assert replaced("$PROJECT_ID ${_X} $$_X $(run) $lower", variables) == "$$p x $_X $(run) $lower"
