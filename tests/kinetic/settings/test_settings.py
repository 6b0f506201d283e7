from __future__ import annotations

import json
from pathlib import Path

import pytest

from kinetic.errors import ConfigurationError
from kinetic.settings.profiles import Profile
from kinetic.settings.settings import Settings, resolve


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path


def profiles(home: Path, current: str | None = "dev", **values: dict[str, str]) -> None:
    folder = home / ".kinetic"
    folder.mkdir(exist_ok=True)
    (folder / "profiles.json").write_text(json.dumps({"current": current, "profiles": values}))


def resolved(
    home: Path, environ: dict[str, str] | None = None, **arguments: str | None
) -> Settings:
    return resolve(arguments, environ=environ or {}, user_home=home)


def test_nothing_set_gives_the_documented_defaults(home: Path) -> None:
    settings = resolved(home)

    assert settings.project.value is None
    assert settings.zone.value == "us-central1-a"
    assert settings.cluster.value == "kinetic-cluster"
    assert settings.namespace.value == "default"
    assert settings.backend.value is None
    assert settings.output_dir.value is None
    assert settings.home.value == str(home / ".kinetic")
    assert settings.context_size_warn_mb.value == 100
    assert settings.payload_size_warn_mb.value == 50
    assert {setting.source for _, setting in settings.items()} == {"default"}


def test_the_sources_of_a_setting_have_an_order(home: Path) -> None:
    profiles(home, dev={"project": "from-profile", "zone": "z", "cluster": "c"})
    everything = {"KINETIC_PROJECT": "from-variable", "GOOGLE_CLOUD_PROJECT": "from-google"}

    argument = resolved(home, everything, project="from-argument").project
    variable = resolved(home, everything).project
    profile = resolved(home, {"GOOGLE_CLOUD_PROJECT": "from-google"}).project
    profiles(home, current=None)
    google = resolved(home, {"GOOGLE_CLOUD_PROJECT": "from-google"}).project

    assert (argument.value, argument.source) == ("from-argument", "argument")
    assert (variable.value, variable.source) == ("from-variable", "KINETIC_PROJECT")
    assert (profile.value, profile.source) == ("from-profile", "profile 'dev'")
    assert (google.value, google.source) == ("from-google", "GOOGLE_CLOUD_PROJECT")


def test_an_empty_variable_counts_as_unset(home: Path) -> None:
    profiles(home, dev={"project": "p", "zone": "from-profile", "cluster": "c"})

    settings = resolved(home, {"KINETIC_ZONE": "", "KINETIC_PROFILE": "", "NO_COLOR": ""})

    assert settings.zone.value == "from-profile"
    assert settings.no_color.value is False


def test_home_and_profiles_file_can_be_elsewhere(home: Path, tmp_path: Path) -> None:
    moved = tmp_path / "elsewhere"
    moved.mkdir()
    (moved / "profiles.json").write_text('{"current": "x", "profiles": {"x": {"zone": "far"}}}')
    named = tmp_path / "named.json"
    named.write_text('{"current": "y", "profiles": {"y": {"zone": "farther"}}}')

    assert resolved(home, {"KINETIC_HOME": str(moved)}).zone.value == "far"
    both = {"KINETIC_HOME": str(moved), "KINETIC_PROFILES_FILE": str(named)}
    assert resolved(home, both).zone.value == "farther"


@pytest.mark.parametrize(
    "variable",
    ["KINETIC_CONTEXT_SIZE_WARN_MB", "KINETIC_PAYLOAD_SIZE_WARN_MB", "KINETIC_STORE_TIMEOUT"],
)
@pytest.mark.parametrize("text", ["many", "-1", "nan", "inf", "1e999", "1_000", "١٠", "１"])
def test_an_invalid_number_is_refused_with_its_variable(
    home: Path, variable: str, text: str
) -> None:
    with pytest.raises(ConfigurationError, match=variable):
        resolved(home, {variable: text})


def test_the_timeout_of_the_store_is_a_setting_from_1_to_86400(home: Path) -> None:
    profiles(home, dev={"backend": "local", "store_timeout": "90"})

    found = resolved(home, {}).store_timeout
    assert (found.value, found.source) == (90, "profile 'dev'")
    assert resolved(home, {"KINETIC_STORE_TIMEOUT": "300.5"}).store_timeout.value == 300.5
    for text in ("0", "86401"):
        with pytest.raises(ConfigurationError, match="from 1 to 86400") as caught:
            resolved(home, {"KINETIC_STORE_TIMEOUT": text})
        assert "KINETIC_STORE_TIMEOUT=60" in str(caught.value.hint)


def test_a_flag_is_yes_or_no(home: Path) -> None:
    for text, expected in (("1", True), ("yes", True), ("0", False)):
        settings = resolved(home, {"KINETIC_NO_DEFAULT_EXCLUDES": text})
        assert settings.no_default_excludes.value is expected
    with pytest.raises(ConfigurationError, match="KINETIC_TRUST_BUCKET"):
        resolved(home, {"KINETIC_TRUST_BUCKET": "perhaps"})


def test_a_profiles_file_that_cannot_be_read_or_is_broken_is_an_error(tmp_path: Path) -> None:
    # As in the home folder of another user, but for root as well.
    with pytest.raises(ConfigurationError, match=r"profiles\.json cannot be read"):
        resolved(tmp_path, {"KINETIC_HOME": f"{tmp_path}/{'long' * 100}"})

    (tmp_path / ".kinetic").mkdir()
    (tmp_path / ".kinetic" / "profiles.json").write_text("{")
    with pytest.raises(ConfigurationError, match="line 1"):
        resolved(tmp_path)


def test_settings_and_profiles_with_pod_overrides_are_hashable(tmp_path: Path) -> None:
    given = {"pod_overrides": {"nodeSelector": {"a": "b"}}}
    first, same = (resolve(given, environ={}, user_home=tmp_path) for _ in range(2))

    assert {first: 1}[same] == 1
    assert {Profile("a", given): 1}[Profile("a", given)] == 1
