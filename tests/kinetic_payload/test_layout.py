import pytest

from kinetic_payload.layout import end_marker, is_end_marker


def test_the_line_that_ends_a_log_is_known_by_its_job() -> None:
    marker = end_marker("cpu-f-1", 2, 10)

    assert is_end_marker(marker, "cpu-f-1")
    assert is_end_marker(f"{marker}\r\n", "cpu-f-1")
    assert not is_end_marker(marker, "cpu-f-2")


@pytest.mark.parametrize(
    "line",
    [
        "",
        "[kinetic:end]",
        "[kinetic:end] j",
        "[kinetic:end] j attempt  host 1",
        "x [kinetic:end] j attempt 1 host 1",
        "[kinetic:end] j attempt 1 host 1 x",
    ],
)
def test_other_lines_are_not(line: str) -> None:
    assert not is_end_marker(line, "j")
