from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st
from locked_project import package

from kinetic_images.builders.layers.plan import (
    LARGE,
    MOST_LAYERS,
    layer_key,
    plan_layers,
    room_above,
)
from kinetic_images.lock.packages import LockedPackage


def plan(*packages: LockedPackage, room: int = 60) -> list[list[str]]:
    sizes = {each.sha256: each.size for each in packages if each.size is not None}
    planned = plan_layers(packages, sizes, room=room, bytecode=None)
    return [[each.name for each in layer.packages] for layer in planned]


def test_large_wheels_have_their_own_layers_and_small_ones_share_the_last() -> None:
    small = [package("b", size=10), package("a", size=LARGE - 1), package("unknown")]
    large = [package("y", size=LARGE), package("z", size=LARGE), package("x", size=5 * LARGE)]

    assert plan(*small, *large) == [["x"], ["y"], ["z"], ["a", "b", "unknown"]]


@given(st.lists(st.integers(0, 3 * LARGE), max_size=20), st.integers(1, 15))
def test_every_package_is_in_one_layer_and_there_is_room(sizes: list[int], room: int) -> None:
    packages = [package(f"{number}", size=size) for number, size in enumerate(sizes)]

    groups = plan(*packages, room=room)

    assert sorted(name for group in groups for name in group) == sorted(
        each.name for each in packages
    )
    assert len(groups) <= room
    assert all(groups)
    assert groups == plan(*reversed(packages), room=room)


def test_the_key_follows_from_everything_that_changes_the_bytes_and_from_nothing_else() -> None:
    alpha = package("a", "1")
    key = layer_key([alpha], bytecode=None)

    assert layer_key([alpha], bytecode="cpython-311-a70d0d0a") != key
    assert layer_key([replace(alpha, sha256="0" * 64)], bytecode=None) != key
    assert layer_key([replace(alpha, file="b-1-py3-none-any.whl")], bytecode=None) != key
    assert layer_key([replace(alpha, address="file:///x", size=7)], bytecode=None) == key


def test_base_and_ours_together_stay_below_the_limit() -> None:
    assert room_above(5) == 60
    assert room_above(100) + 100 + 1 == MOST_LAYERS
    assert room_above(119) == 0
