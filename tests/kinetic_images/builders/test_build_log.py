"""Of a log of BuildKit, the lines that explain a failure are shown."""

from __future__ import annotations

import pytest

from kinetic_images.builders.build_log import SHOWN, is_noise, log_end

FAILED = """\
#5 [install 2/2] RUN python3 install.py
#5 sha256:{digest}
#6 [other] RUN true
#5 0.345 error: it failed
#6 0.400 not related
#5 ERROR: executor failed running [/bin/sh -c python3]: exit code: 1
------
 > [install 2/2] RUN python3 install.py:
#5 0.345 error: it failed
------
executor failed running [/bin/sh -c python3]: exit code: 1""".format(digest="0" * 64)


@pytest.mark.parametrize("prefix", ["", "Step #0: ", 'Step #12 - "build": '])
def test_the_failed_step_is_shown_without_the_others(prefix: str) -> None:
    lines = [prefix + line for line in FAILED.splitlines()]

    shown = log_end(lines).splitlines()

    assert shown[:3] == [
        "[install 2/2] RUN python3 install.py",
        "error: it failed",
        "ERROR: executor failed running [/bin/sh -c python3]: exit code: 1",
    ]
    assert "not related" not in "".join(shown)


def test_without_a_failed_step_the_last_lines_are_shown_without_digests_of_steps() -> None:
    lines = [f"line {number}" for number in range(100)] + [""]

    assert log_end(lines).splitlines() == [f"line {number}" for number in range(100 - SHOWN, 100)]
    assert is_noise(f"#4 sha256:{'a' * 64}")
    assert not is_noise("#4 CACHED")
