"""Two recipes have one tag if, and only if, they make the same image."""

from __future__ import annotations

from dataclasses import replace

import pytest
from locked_project import package

from kinetic_images.recipe import Recipe
from kinetic_images.targets import Target

ALPHA = package("alpha", "1")
BETA = package("beta", "1")
RECIPE = Recipe(
    target=Target(python="3.11"),
    base=f"127.0.0.1:5000/base/python@sha256:{'0' * 64}",
    packages=(ALPHA, BETA),
    files={"/app/run.py": b"1"},
    labels={"maker": "me"},
)


@pytest.mark.parametrize(
    "same",
    [
        replace(RECIPE, packages=(BETA, ALPHA)),
        replace(RECIPE, packages=(replace(ALPHA, address="https://two.example/b", size=3), BETA)),
        replace(RECIPE, labels={"maker": "you"}),
        replace(RECIPE, base=f"registry.example/mirror@sha256:{'0' * 64}"),
    ],
)
def test_addresses_order_and_labels_do_not_change_the_tag(same: Recipe) -> None:
    assert same.tag == RECIPE.tag


@pytest.mark.parametrize(
    ("ingredient", "other"),
    [
        ("Python", replace(RECIPE, target=Target(python="3.12"))),
        ("platform", replace(RECIPE, target=Target(python="3.11", machine="aarch64"))),
        ("platform", replace(RECIPE, target=Target(python="3.11", glibc=(2, 31)))),
        ("base image", replace(RECIPE, base=f"127.0.0.1:5000/base/python@sha256:{'1' * 64}")),
        ("packages", replace(RECIPE, packages=(ALPHA,))),
        ("packages", replace(RECIPE, packages=(replace(ALPHA, sha256="b" * 64), BETA))),
        ("packages", replace(RECIPE, packages=(replace(ALPHA, version="2"), BETA))),
        ("packages", replace(RECIPE, packages=(replace(ALPHA, subdirectory="x"), BETA))),
        ("file /app/run.py", replace(RECIPE, files={"/app/run.py": b"2"})),
    ],
)
def test_every_ingredient_changes_the_tag_and_is_named(ingredient: str, other: Recipe) -> None:
    assert other.tag != RECIPE.tag
    assert other.tag.isalnum()
    assert len(other.tag) <= 128  # Registries accept it.
    before, after = RECIPE.ingredients, other.ingredients
    assert [name for name in before if before[name] != after.get(name)] == [ingredient]


@pytest.mark.parametrize(
    ("later", "words"),
    [
        (RECIPE, "no longer has the image"),
        (replace(RECIPE, packages=(ALPHA,)), "packages (beta removed)"),
        (replace(RECIPE, packages=(replace(ALPHA, version="2"), BETA)), "packages (alpha 1 → 2)"),
        (replace(RECIPE, packages=(replace(ALPHA, sha256="b" * 64), BETA)), "(other files of the same versions)"),
        (replace(RECIPE, files={}), "since the last one: file /app/run.py."),
    ],
)  # fmt: skip
def test_what_differs_from_the_last_image_is_named(later: Recipe, words: str) -> None:
    assert words in later.changed_since(RECIPE.record)
    assert "no image for these dependencies yet" in later.changed_since({})
