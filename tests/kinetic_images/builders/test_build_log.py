"""Of the log of a build, the end explains a failure."""

from __future__ import annotations

from kinetic_images.builders.build_log import BuildLog


def test_the_lines_are_reported_and_the_last_ones_kept_without_digests_of_steps() -> None:
    reported: list[str] = []
    log = BuildLog(str.strip, reported.append)

    for line in (
        *map(str, range(100)),
        "",
        f"#4 sha256:{'a' * 64}",
        f"Step #0: #4 sha256:{'b' * 64}",
    ):
        log(line)
    log("#4 CACHED")

    assert reported == [*map(str, range(100)), "#4 CACHED"]
    assert log.end.splitlines() == [*map(str, range(71, 100)), "#4 CACHED"]
