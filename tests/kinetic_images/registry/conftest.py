"""A registry in this process, and clients of it."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from eager import eager

from kinetic_images.registry.registry import Registry
from kinetic_images.registry.repository import Repository
from kinetic_servers.registry import RegistryServer


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    """The environment of a user without any login."""
    return {"HOME": str(tmp_path / "home"), "PATH": "/usr/bin:/bin"}


@pytest.fixture
def log_in(environ: Mapping[str, str]) -> Callable[..., None]:
    """Return what makes a login, as `docker login` does."""

    def save(host: str, user: str = "me", password: str = "secret", **entry: str) -> None:
        auth = base64.b64encode(f"{user}:{password}".encode()).decode()
        docker_config(environ, {"auths": {host: entry or {"auth": auth}}})

    return save


def docker_config(environ: Mapping[str, str], config: object) -> Path:
    path = Path(environ["HOME"], ".docker", "config.json")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(config), encoding="utf-8")
    return path


@pytest.fixture
def write_docker_config(environ: Mapping[str, str]) -> Callable[[object], Path]:
    """Return what writes docker's `config.json`."""
    return lambda config: docker_config(environ, config)


@pytest.fixture
def registry(environ: Mapping[str, str]) -> Registry:
    return Registry(environ=environ, policy=eager())


@pytest.fixture
def repository(server: RegistryServer, registry: Registry) -> Repository:
    return registry.repository(f"{server.host}/kn/image")
