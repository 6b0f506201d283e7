from __future__ import annotations

import pytest

from kinetic_payload.project.binaries import binaries_warning

FAST = "pkg/_fast.cpython-311-darwin.so"


@pytest.mark.parametrize(
    ("paths", "named"),
    [
        ([FAST, "pkg/a.py"], [FAST]),
        (["lib/libx.1.dylib", "b/_c.so"], ["lib/libx.1.dylib"]),
        ([FAST, "pkg/_fast.cpython-311-x86_64-linux-gnu.so"], []),
        (["libx.dylib", "libx.so.1"], []),
        (["a.py", "_c.abi3.so"], []),
    ],
)
def test_files_that_only_macos_loads_are_named_where_the_job_runs_on_linux(
    paths: list[str], named: list[str]
) -> None:
    warning = binaries_warning(paths, platform="linux")

    assert (warning or "").startswith(", ".join(named))
    assert (warning is not None) == bool(named)
    assert binaries_warning(paths, platform="darwin") is None


def test_only_a_few_of_many_such_files_are_named() -> None:
    warning = binaries_warning([f"{n}.dylib" for n in range(9)], platform="linux")

    assert warning is not None
    assert "4.dylib and 4 more files" in warning
