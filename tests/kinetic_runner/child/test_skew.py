import pytest

from kinetic_runner.child.skew import Fingerprint, import_note, skews_of

HERE = Fingerprint("3.11.7", "3.1.2", "linux-x86_64")


@pytest.mark.parametrize(
    ("client", "silent"),
    [
        (HERE, []),
        (Fingerprint("3.11.2", "3.1.0"), []),
        (Fingerprint("", "3.1.2"), []),
        (Fingerprint("3.12.1", "3.1.2"), [False]),
        (Fingerprint("3.11.7", "2.2.1"), [False]),
        (Fingerprint("3.1.0", "3.0.0"), [False, False]),
        (HERE._replace(platform="darwin-arm64"), [True]),
        (HERE._replace(platform="linux-aarch64"), [True]),
    ],
)
def test_minor_versions_matter_and_another_platform_only_to_a_failure(
    client: Fingerprint, silent: list[bool]
) -> None:
    assert [skew.silent for skew in skews_of(client, HERE)] == silent


@pytest.mark.parametrize(
    ("error", "platform", "noted"),
    [
        (ImportError("no _fast"), "darwin-arm64", True),
        (OSError("libfast.so: invalid ELF header"), "darwin-arm64", True),
        (OSError("no such file"), "darwin-arm64", False),
        (ValueError("bad learning rate"), "darwin-arm64", False),
        (ImportError("no _fast"), "", False),
    ],
)
def test_a_module_that_cannot_be_loaded_may_be_of_the_other_platform(
    error: Exception, platform: str, noted: bool
) -> None:
    note = import_note(skews_of(HERE._replace(platform=platform), HERE), error)

    assert ("macOS arm64" in (note or "")) is noted
