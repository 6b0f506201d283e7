"""The cluster and the bucket service that settings name."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from kinetic.backends.gke.checks import storage_variables
from kinetic.backends.gke.connect import find_cluster
from kinetic.errors import ConfigurationError
from kinetic.settings.settings import resolve
from kinetic.target import Target
from kinetic_k8s.cluster import Identity
from kinetic_k8s.errors import UnknownClusterError, UnknownContextError

if TYPE_CHECKING:
    from kinetic_servers.gke import GkeServer


def cluster_in(target: Target | None, folder: Path, **variables: str) -> Identity:
    settings = resolve({"home": str(folder)}, environ=variables, user_home=folder)
    cluster, _ = find_cluster(settings, target, variables)
    return cluster.identity


@pytest.fixture
def here(tmp_path: Path, gke: GkeServer) -> dict[str, str]:
    """Return the variables of a machine that knows the context `here` and the GKE API."""
    gke.add(
        "kinetic-cluster",
        project="p",
        server="https://10.0.0.2",
        ca="-----BEGIN CERTIFICATE-----\n",
    )
    kubeconfig = {
        "contexts": [{"name": "here", "context": {"cluster": "c"}}],
        "clusters": [{"name": "c", "cluster": {"server": "https://10.0.0.1"}}],
    }
    (tmp_path / "kubeconfig").write_text(json.dumps(kubeconfig))
    return {
        "KUBECONFIG": str(tmp_path / "kubeconfig"),
        "CLOUDSDK_API_ENDPOINT_OVERRIDES_CONTAINER": f"https://{gke.endpoint}/",
    }


def test_without_a_project_and_a_context_no_cluster_is_found(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="No cluster is named") as caught:
        cluster_in(Target(), tmp_path)

    assert "KINETIC_PROJECT" in str(caught.value)
    assert "KINETIC_KUBE_CONTEXT" in str(caught.value)


def test_a_context_is_preferred_to_a_project_and_a_project_to_the_cluster_of_the_pod(
    tmp_path: Path, here: dict[str, str]
) -> None:
    here["KUBERNETES_SERVICE_HOST"] = "10.0.0.3"
    by_project = {**here, "KINETIC_PROJECT": "p"}
    by_context = {**by_project, "KINETIC_KUBE_CONTEXT": "here"}

    assert cluster_in(None, tmp_path, **by_context).server == "https://10.0.0.1"
    assert cluster_in(None, tmp_path, **by_project).server == "https://10.0.0.2:443"
    with pytest.raises(UnknownClusterError, match="no service account"):
        cluster_in(None, tmp_path, **here)


def test_a_context_that_is_unknown_on_this_machine_is_replaced_by_its_own_settings(
    tmp_path: Path, here: dict[str, str]
) -> None:
    target = Target(namespace="team", kube_context="there", project="defaults-of-the-submitter")

    with pytest.raises(UnknownContextError, match="there") as caught:
        cluster_in(target, tmp_path, **here)
    assert "KINETIC_KUBE_CONTEXT" in str(caught.value)
    by_context = cluster_in(target, tmp_path, **here, KINETIC_KUBE_CONTEXT="here")
    by_name = cluster_in(target, tmp_path, **here, KINETIC_PROJECT="p")
    assert (by_context.server, by_context.namespace) == ("https://10.0.0.1", "team")
    assert (by_name.server, by_name.namespace) == ("https://10.0.0.2:443", "team")


@pytest.mark.parametrize(
    "address",
    [
        "http://127.0.0.1:4443", "localhost:4443", "http://[::1]:1", "http://0.0.0.0:1",
        "https://bucket.localhost",
    ],
)  # fmt: skip
@pytest.mark.parametrize("variable", ["KINETIC_STORAGE_ENDPOINT", "STORAGE_EMULATOR_HOST"])
def test_a_bucket_service_on_a_loopback_address_is_refused(variable: str, address: str) -> None:
    with pytest.raises(ConfigurationError, match=variable):
        storage_variables({variable: address})


def test_pods_get_the_variable_that_names_the_bucket_service_here() -> None:
    known = {"STORAGE_EMULATOR_HOST": "http://10.0.0.1:1", "PATH": "/bin"}

    assert storage_variables({"PATH": "/bin"}) == {}
    assert storage_variables(known) == {"STORAGE_EMULATOR_HOST": "http://10.0.0.1:1"}
    own = {"KINETIC_STORAGE_ENDPOINT": "http://10.0.0.2:1"}
    assert storage_variables({**known, **own}) == own
