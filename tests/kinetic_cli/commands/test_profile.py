"""`kinetic profile …` and `kinetic config`, over a real profiles file."""

from __future__ import annotations

import json
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from kinetic.settings.profiles import Profile
from kinetic_cli.testing import run

A = ("--project", "p", "--zone", "z", "--cluster", "c")


NO_PATHWAYS = {each.name: None for each in fields(Profile) if each.name.startswith("pathways_")}


def config(home: Path, *args: str, **environment: str) -> dict[str, Any]:
    ran = run(*args, "config", "--json", home=home, environment=environment)
    assert ran.exit_code == 0, ran.stderr
    settings: dict[str, Any] = json.loads(ran.stdout)
    return settings


def names(home: Path) -> dict[str, bool]:
    rows = json.loads(run("profile", "ls", "--json", home=home).stdout)
    return {row["name"]: row["current"] for row in rows}


def test_a_profile_lives_from_create_to_rm(tmp_path: Path) -> None:
    assert names(tmp_path) == {}

    first = run("profile", "create", "one", *A, home=tmp_path)
    given = ("--backend", "gke", "--store-timeout", "120", "--service-account", "trainer")
    given += ("--image-repo", "127.0.0.1:5000/kn", "--build-secret", "kinetic-netrc")
    run("profile", "create", "two", *A, *given, home=tmp_path)

    assert first.stdout == "Wrote profile one. It is the current one.\n"
    assert names(tmp_path) == {"one": True, "two": False}
    assert run("profile", "use", "two", home=tmp_path).exit_code == 0
    assert json.loads(run("profile", "show", "--json", home=tmp_path).stdout) == {
        "name": "two",
        "project": "p",
        "zone": "z",
        "cluster": "c",
        "namespace": None,
        "backend": "gke",
        "kube_context": None,
        "store_timeout": "120",
        "service_account": "trainer",
        "image_builder": None,
        "build_secret": "kinetic-netrc",
        "image_repo": "127.0.0.1:5000/kn",
        "base_image_repo": None,
        "pod_overrides": None,
        **NO_PATHWAYS,
        "current": True,
    }
    assert run("profile", "unset", home=tmp_path).exit_code == 0
    assert names(tmp_path) == {"one": False, "two": False}
    assert run("profile", "rm", "one", home=tmp_path).exit_code == 0
    assert names(tmp_path) == {"two": False}


def test_pod_overrides_are_given_as_json_or_as_a_file_with_it(tmp_path: Path) -> None:
    overrides = {"spec": {"priorityClassName": "batch"}}
    file = tmp_path / "pods.json"
    file.write_text(json.dumps(overrides))

    for given in (json.dumps(overrides), str(file)):
        made = run(
            "profile", "create", "one", *A, "--pod-overrides", given, "--replace", home=tmp_path
        )
        assert made.exit_code == 0, made.stderr
        assert config(tmp_path)["pod_overrides"] == {
            "value": overrides,
            "source": "profile 'one'",
        }
    assert '{"spec": {' in run("config", home=tmp_path).stdout
    assert '{"spec": {' in run("profile", "show", home=tmp_path).stdout


@pytest.mark.parametrize(
    ("given", "said"), [("{", "not valid JSON"), ("no.json", "cannot be read")]
)
def test_pod_overrides_that_are_no_object_are_a_usage_error(
    tmp_path: Path, given: str, said: str
) -> None:
    ran = run("profile", "create", "one", *A, "--pod-overrides", given, home=tmp_path)

    assert ran.exit_code == 2
    assert said in ran.stderr


def test_settings_of_pathways_are_given_without_their_prefix(tmp_path: Path) -> None:
    given = ("--pathways", "tag=jax-0.10.0", "--pathways", "manager=cpu=1,memory=2G")
    made = run("profile", "create", "one", *A, *given, home=tmp_path)
    wrong = run("profile", "create", "two", *A, "--pathways", "tags=1", home=tmp_path)

    assert made.exit_code == 0, made.stderr
    settings = config(tmp_path)
    assert settings["pathways_tag"] == {"value": "jax-0.10.0", "source": "profile 'one'"}
    assert settings["pathways_manager"]["value"] == "cpu=1,memory=2G"
    shown = run("profile", "show", home=tmp_path).stdout
    assert "jax-0.10.0" in shown
    assert "proxy" not in shown
    assert wrong.exit_code == 2
    assert "server_image" in wrong.stderr


def test_the_options_of_the_target_may_stand_before_the_command_too(tmp_path: Path) -> None:
    run(*A, "profile", "create", "one", "--zone", "nearer", home=tmp_path)

    [row] = json.loads(run("profile", "ls", "--json", home=tmp_path).stdout)

    assert (row["project"], row["zone"], row["cluster"]) == ("p", "nearer", "c")


def test_ls_marks_the_current_profile(tmp_path: Path) -> None:
    run("profile", "create", "one", *A, home=tmp_path)

    lines = run("profile", "ls", home=tmp_path).stdout.splitlines()

    assert [line.split() for line in lines] == [
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


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["use", "nope"], "nope"),
        (["rm", "nope"], "nope"),
        (["show", "nope"], "nope"),
        (["show"], "No profile is current"),
        (["create", "no good", *A], "'no good'"),
        (["create", "one", "--zone", "z"], "no project"),
    ],
)
def test_what_cannot_be_done_is_exit_code_1_and_a_sentence(
    tmp_path: Path, args: list[str], said: str
) -> None:
    ran = run("profile", *args, home=tmp_path)

    assert ran.exit_code == 1
    assert said in ran.stderr
    assert ran.stdout == ""


def test_a_broken_file_is_named_and_not_touched(tmp_path: Path) -> None:
    file = tmp_path / "profiles.json"
    file.write_text("{\n oops")

    ran = run("profile", "create", "one", *A, home=tmp_path)

    assert ran.exit_code == 1
    assert f"{file} is broken at line 2" in ran.stderr
    assert file.read_text() == "{\n oops"


def test_a_profile_can_be_made_while_the_chosen_one_is_missing(tmp_path: Path) -> None:
    ran = run("profile", "create", "one", *A, home=tmp_path, environment={"KINETIC_PROFILE": "one"})

    assert ran.exit_code == 0, ran.stderr


def test_config_says_where_each_value_comes_from(tmp_path: Path) -> None:
    run("profile", "create", "one", *A, home=tmp_path)

    settings = config(tmp_path, "--project", "mine", KINETIC_ZONE="there")

    assert settings["project"] == {"value": "mine", "source": "--project"}
    assert settings["zone"] == {"value": "there", "source": "KINETIC_ZONE"}
    assert settings["cluster"]["value"] == "c"
    assert "one" in settings["cluster"]["source"]
    assert settings["namespace"] == {"value": "default", "source": "default"}
    assert settings["home"] == {"value": str(tmp_path), "source": "KINETIC_HOME"}


def test_a_profile_is_chosen_for_one_command(tmp_path: Path) -> None:
    run("profile", "create", "one", *A, home=tmp_path)
    run("profile", "create", "two", *A[:-1], "other", home=tmp_path)

    assert config(tmp_path, "--profile", "two")["cluster"]["value"] == "other"
    assert config(tmp_path)["cluster"]["value"] == "c"


def test_an_unknown_profile_is_refused_with_those_that_are_near(tmp_path: Path) -> None:
    run("profile", "create", "production", *A, home=tmp_path)

    ran = run("--profile", "prodution", "config", home=tmp_path)

    assert ran.exit_code == 1
    assert "production" in ran.stderr
