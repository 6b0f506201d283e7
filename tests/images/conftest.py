"""Programs that these tests need: Debian's registry and docker, each started by the tests themselves."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NoReturn

import pytest
from container_programs import (
    Engine,
    base_archive,
    find_program,
    push_base,
    running_engine,
    running_registry,
)

REQUIRED = "KINETIC_TEST_IMAGES"
HERE = Path(__file__).parent


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave these tests out of runs that do not name them: they start a container engine."""
    named = [Path(argument.partition("::")[0]).absolute() for argument in config.args]
    return None if any(path == HERE or HERE in path.parents for path in named) else True


def missing(reason: str) -> NoReturn:
    """Skip the test, or fail where no test may skip."""
    if os.environ.get(REQUIRED) == "required":  # noqa: TID251
        pytest.fail(f"{reason}, and {REQUIRED}=required")
    pytest.skip(reason)


@pytest.fixture(scope="session")
def need() -> Callable[[str, str], str]:
    """Return what returns the path of a program, or skips the test that needs it."""

    def path_of(program: str, package: str) -> str:
        found = find_program(program)
        if found is None:
            missing(f"{program} is missing (Debian's package {package})")
        return found

    return path_of


@pytest.fixture(scope="session")
def docker_registry(
    need: Callable[[str, str], str], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    """Return the address of Debian's registry, which everybody may write to."""
    folder = tmp_path_factory.mktemp("docker-registry")
    with running_registry(need("docker-registry", "docker-registry"), folder) as host:
        yield host


@pytest.fixture(scope="session")
def engine(need: Callable[[str, str], str]) -> Iterator[Engine]:
    """Start dockerd with data of its own; only one runs on a machine at a time."""
    program = need("dockerd", "docker.io")
    if os.geteuid() != 0:
        pytest.skip("dockerd needs root")
    with running_engine(program) as found:
        yield found


@pytest.fixture(scope="session")
def debian(docker_registry: str) -> str:
    """The base image of the test cloud, Debian's Python 3.11, in the registry."""
    archive = base_archive()
    if archive is None:
        missing("the base image is missing (KINETIC_TESTCLOUD names the folder of the test cloud)")
    return push_base(archive, docker_registry)
