"""Components of Pathways, by its settings."""

from __future__ import annotations

from pathlib import Path

import pytest
from small_images import push_image

from kinetic.backends.gke.pathways_components import components_of, fitting_tag
from kinetic.errors import ConfigurationError
from kinetic.settings.settings import resolve
from kinetic_images.registry.registry import Registry
from kinetic_k8s.manifests.components import PathwaysComponents
from kinetic_k8s.manifests.pod import Resources
from kinetic_payload.stores.store import Location
from kinetic_servers.registry import RegistryServer

STORE = Location("gs", "jobs/team")


def components(home: Path, **environ: str) -> PathwaysComponents:
    named = {f"KINETIC_PATHWAYS_{name.upper()}": value for name, value in environ.items()}
    return components_of(resolve({}, environ=named, user_home=home), STORE)


def test_settings_that_are_left_out_have_the_defaults_of_google(tmp_path: Path) -> None:
    default = PathwaysComponents(scratch="gs://jobs/team/pathways-scratch")

    assert components(tmp_path) == default
    found = components(
        tmp_path, manager="cpu=10m,memory=16Mi", proxy="cpu=10m", worker="memory=32Mi",
        tag="jax-0.10.0", proxy_image="example.com/proxy:1",
    )  # fmt: skip
    assert found.manager == Resources(cpu="10m", memory="16Mi")
    assert found.proxy == Resources(cpu="10m", memory="100G")
    assert found.worker == Resources(memory="32Mi")
    assert found.function == default.function
    assert found.server_image.endswith("/pathways/server:jax-0.10.0")
    assert found.proxy_image == "example.com/proxy:1"


def test_the_tag_of_the_components_follows_the_jax_of_the_image(tmp_path: Path) -> None:
    registry, warned = Registry(environ={}, google=lambda: None), list[str]()
    with RegistryServer() as server:
        push_image(server.host, registry, name="server", tag="jax-0.10.2")
        image = f"{server.host}/server:latest"
        tags = [fitting_tag(image, jax, registry, warned.append) for jax in ("0.10.2", "3", None)]

    found = components_of(resolve({}, environ={}, user_home=tmp_path), STORE, tags[0])
    assert found.server_image.endswith("/pathways/server:jax-0.10.2")
    assert found.proxy_image.endswith("/pathways/proxy_server:jax-0.10.2")
    assert tags[1:] == [None, None]
    assert "no tag jax-3. It must fit" in warned[0]
    assert "is not known. It must fit" in warned[1]


def test_head_and_workers_are_placed_by_labels_and_taints(tmp_path: Path) -> None:
    found = components(
        tmp_path,
        head_selector="cloud.google.com/gke-nodepool=cpu-np, disk=ssd",
        head_tolerations="team=vision:NoSchedule,shared",
        head_topology="none",
        worker_selector="cloud.google.com/gke-nodepool=tpu-np",
        scratch="gs://other/scratch",
    )

    assert found.head_selector == {"cloud.google.com/gke-nodepool": "cpu-np", "disk": "ssd"}
    assert found.head_tolerations == (
        {"key": "team", "operator": "Equal", "value": "vision", "effect": "NoSchedule"},
        {"key": "shared", "operator": "Exists"},
    )
    assert found.head_topology is None
    assert found.worker_selector == {"cloud.google.com/gke-nodepool": "tpu-np"}
    assert found.scratch == "gs://other/scratch"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("tag", "server:jax"), ("scratch", "/tmp"), ("server_image", "https://example.com/server"),
        ("manager", "8"), ("manager", "cpus=8"), ("proxy", "cpu=lots"), ("head_selector", "pool"),
        ("head_selector", "a b=c"), ("head_tolerations", "team=vision:Never"), ("head_topology", "a b"),
    ],
)  # fmt: skip
def test_an_invalid_setting_is_refused_with_its_source(
    tmp_path: Path, name: str, value: str
) -> None:
    with pytest.raises(ConfigurationError) as caught:
        components(tmp_path, **{name: value})

    assert f"pathways_{name} is {value!r} (KINETIC_PATHWAYS_{name.upper()})" in str(caught.value)
    assert caught.value.hint
