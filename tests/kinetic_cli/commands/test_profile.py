"""`kinetic profile …` and `kinetic config`, over a real profiles file."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

from kinetic.settings.profiles import KEYS
from kinetic_servers.stub_jobs import run

CLUSTER = ("--project", "p", "--zone", "z", "--cluster", "c")
Kinetic = Callable[..., Result]


@pytest.fixture
def kinetic(tmp_path: Path) -> Kinetic:
    """Return what runs `kinetic ARGUMENTS`; keyword arguments are variables."""
    return lambda *args, **environment: run(*args, home=tmp_path, environment=environment)


@pytest.fixture
def config(kinetic: Kinetic) -> Callable[..., dict[str, Any]]:
    """Return what runs `kinetic ARGUMENTS config` and returns the settings."""

    def call(*args: str, **environment: str) -> dict[str, Any]:
        ran = kinetic(*args, "config", "--json", **environment)
        assert ran.exit_code == 0, ran.stderr
        settings: dict[str, Any] = json.loads(ran.stdout)
        return settings

    return call


def names(kinetic: Kinetic) -> dict[str, bool]:
    """Return for each profile whether it is the current one."""
    rows = json.loads(kinetic("profile", "ls", "--json").stdout)
    return {row["name"]: row["current"] for row in rows}


def test_a_profile_is_created_used_shown_and_removed(kinetic: Kinetic) -> None:
    assert names(kinetic) == {}

    first = kinetic("profile", "create", "one", *CLUSTER)
    given = {"backend": "gke", "store_timeout": "120", "service_account": "trainer"}
    given |= {"image_repo": "127.0.0.1:5000/kn", "build_secret": "kinetic-netrc"}
    options = [word for name, v in given.items() for word in (f"--{name.replace('_', '-')}", v)]
    kinetic("profile", "create", "two", *CLUSTER, *options)

    assert first.stdout == "Wrote profile one. It is the current one.\n"
    assert names(kinetic) == {"one": True, "two": False}
    assert [line.split() for line in kinetic("profile", "ls").stdout.splitlines()][:2] == [
        [
            "CURRENT",
            "NAME",
            "PROJECT",
            "ZONE",
            "CLUSTER",
            "NAMESPACE",
            "BACKEND",
            "KUBE",
            "CONTEXT",
        ],
        ["*", "one", "p", "z", "c", "-", "-", "-"],
    ]
    assert kinetic("profile", "use", "two").exit_code == 0
    everything = dict.fromkeys(("name", *KEYS))
    shown = {"name": "two", "project": "p", "zone": "z", "cluster": "c", "current": True, **given}
    document = json.loads(kinetic("profile", "show", "--json").stdout)
    assert document == {**everything, **shown}
    assert kinetic("profile", "unset").exit_code == 0
    assert names(kinetic) == {"one": False, "two": False}
    assert kinetic("profile", "rm", "one").exit_code == 0
    assert names(kinetic) == {"two": False}


def test_pod_overrides_are_given_as_json_or_as_a_file(
    kinetic: Kinetic, config: Callable[..., dict[str, Any]], tmp_path: Path
) -> None:
    overrides = {"spec": {"priorityClassName": "batch"}}
    file = tmp_path / "pods.json"
    file.write_text(json.dumps(overrides))
    create = ("profile", "create", "one", *CLUSTER, "--replace", "--pod-overrides")

    for given in (json.dumps(overrides), str(file)):
        made = kinetic(*create, given)
        assert made.exit_code == 0, made.stderr
        assert config()["pod_overrides"] == {"value": overrides, "source": "profile 'one'"}
    assert '{"spec": {' in kinetic("config").stdout
    assert '{"spec": {' in kinetic("profile", "show").stdout
    for given, message in (("{", "not valid JSON"), ("no.json", "cannot be read")):
        ran = kinetic(*create, given)
        assert ran.exit_code == 2
        assert message in ran.stderr


def test_settings_of_pathways_are_given_without_their_prefix(
    kinetic: Kinetic, config: Callable[..., dict[str, Any]]
) -> None:
    given = ("--pathways", "tag=jax-0.10.0", "--pathways", "manager=cpu=1,memory=2G")
    made = kinetic("profile", "create", "one", *CLUSTER, *given)
    wrong = kinetic("profile", "create", "two", *CLUSTER, "--pathways", "tags=1")

    assert made.exit_code == 0, made.stderr
    settings = config()
    assert settings["pathways_tag"] == {"value": "jax-0.10.0", "source": "profile 'one'"}
    assert settings["pathways_manager"]["value"] == "cpu=1,memory=2G"
    shown = kinetic("profile", "show").stdout
    assert "jax-0.10.0" in shown
    assert "proxy" not in shown
    assert wrong.exit_code == 2
    assert "server_image" in wrong.stderr


def test_options_may_stand_before_the_command(kinetic: Kinetic) -> None:
    kinetic(*CLUSTER, "profile", "create", "one", "--zone", "nearer")

    [row] = json.loads(kinetic("profile", "ls", "--json").stdout)

    assert (row["project"], row["zone"], row["cluster"]) == ("p", "nearer", "c")


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["profile", "use", "prodution"], "production"),
        (["profile", "rm", "nope"], "nope"),
        (["profile", "show", "nope"], "nope"),
        (["profile", "create", "no good", *CLUSTER], "'no good'"),
        (["profile", "create", "one", "--zone", "z"], "no project"),
        (["--profile", "prodution", "config"], "production"),
    ],
)
def test_an_error_about_a_profile_is_exit_code_1(
    kinetic: Kinetic, args: list[str], message: str
) -> None:
    assert "No profile is current" in kinetic("profile", "show").stderr
    kinetic("profile", "create", "production", *CLUSTER)

    ran = kinetic(*args)

    assert ran.exit_code == 1
    assert message in ran.stderr
    assert ran.stdout == ""


def test_a_profile_can_be_created_although_it_is_chosen_already(kinetic: Kinetic) -> None:
    ran = kinetic("profile", "create", "one", *CLUSTER, KINETIC_PROFILE="one")

    assert ran.exit_code == 0, ran.stderr


def test_config_names_the_source_of_each_value(
    kinetic: Kinetic, config: Callable[..., dict[str, Any]], tmp_path: Path
) -> None:
    kinetic("profile", "create", "one", *CLUSTER)
    kinetic("profile", "create", "two", *CLUSTER[:-1], "other")

    settings = config("--project", "mine", KINETIC_ZONE="there")

    assert settings["project"] == {"value": "mine", "source": "--project"}
    assert settings["zone"] == {"value": "there", "source": "KINETIC_ZONE"}
    assert settings["cluster"] == {"value": "c", "source": "profile 'one'"}
    assert settings["namespace"] == {"value": "default", "source": "default"}
    assert settings["home"] == {"value": str(tmp_path), "source": "KINETIC_HOME"}
    assert config("--profile", "two")["cluster"]["value"] == "other"
