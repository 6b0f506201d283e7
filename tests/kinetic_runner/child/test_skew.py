import pytest

from kinetic_runner.child.skew import Fingerprint, leading, skews_of


def here(python: str = "3.11.7", cloudpickle: str = "3.1.2") -> Fingerprint:
    return Fingerprint(python, cloudpickle)


@pytest.mark.parametrize(
    ("client", "differences"),
    [
        (here(), 0),
        (here(python="3.11.2"), 0),
        (here(cloudpickle="3.1.0"), 0),
        (here(python="3.12.1"), 1),
        (here(cloudpickle="2.2.1"), 1),
        (here(python="3.1.0", cloudpickle="3.0.0"), 2),
        (here(python=""), 0),
    ],
)
def test_only_minor_versions_matter_to_a_pickle(client: Fingerprint, differences: int) -> None:
    assert len(skews_of(client, here())) == differences


def test_a_failure_begins_with_the_skew_and_ends_with_what_to_do() -> None:
    text = leading(skews_of(here(python="3.12.1"), here()), "TypeError: code() takes 18 arguments")

    assert text.startswith("The call was written by Python 3.12 and is read by Python 3.11")
    assert "TypeError: code() takes 18 arguments" in text
    assert "run the job with Python 3.12" in text


def test_without_a_skew_the_failure_speaks_for_itself() -> None:
    assert leading((), "boom") == "boom"


@pytest.mark.parametrize(
    ("client", "here", "silent"),
    [
        ("darwin-arm64", "linux-x86_64", [True]),
        ("linux-aarch64", "linux-x86_64", [True]),
        ("linux-x86_64", "linux-x86_64", []),
        ("", "linux-x86_64", []),
    ],
)
def test_another_platform_matters_only_to_a_failure(
    client: str, here: str, silent: list[bool]
) -> None:
    skews = skews_of(Fingerprint("", "", client), Fingerprint("", "", here))

    assert [skew.silent for skew in skews] == silent
