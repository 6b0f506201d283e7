"""The contract of backends on a real cluster."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from pods import small

from kinetic.testing import (
    BackendContract,
    BackendHosts,
    BackendQueue,
    BackendTrust,
    BackendValues,
    RegisteredClient,
)
from kinetic_servers.gcs import GcsProcess


class OnACluster:
    @pytest.fixture(autouse=True)
    def a_cluster(
        self,
        bed: Any,
        namespace: str,
        image: str,
        bucket: GcsProcess,
        tmp_path: Path,
        warm: Callable[[Path], Path],
        monkeypatch: pytest.MonkeyPatch,
        wait_for: Callable[..., Any],
    ) -> None:
        self.bed, self.namespace, self.image, self.wait_for = bed, namespace, image, wait_for
        variables = {
            **bucket.environment,
            "KUBECONFIG": bed.kubeconfig,
            "KINETIC_HOME": str(warm(tmp_path / "home")),
            "KINETIC_BACKEND": "gke",
            "KINETIC_KUBE_CONTEXT": "kube-bed",
            "KINETIC_NAMESPACE": namespace,
            "KINETIC_STORE": f"gs://jobs/{secrets.token_hex(4)}",
        }
        for name, value in variables.items():
            monkeypatch.setenv(name, value)


class TestOnTwoHosts(OnACluster, BackendHosts):
    hosts = 2
    several_hosts: Mapping[str, Any] = {}

    @pytest.fixture(autouse=True)
    def a_slice(
        self, a_cluster: None, slice_of_two: str, priority: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        self.accelerator = slice_of_two
        monkeypatch.setenv("PRIORITY", priority)

    def make_client(self, folder: Path) -> RegisteredClient:
        return RegisteredClient(
            backend="gke", accelerator=self.accelerator, container_image=self.image,
            memory="128Mi", pod_overrides=small(),
        )  # fmt: skip


class TestUnderPathways(OnACluster, BackendValues):
    @pytest.fixture(autouse=True)
    def stand_ins(
        self,
        a_cluster: None,
        slice_of_two: str,
        priority: str,
        components: Mapping[str, str],
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        self.accelerator = slice_of_two
        variables = {**components, "KINETIC_BACKEND": "pathways", "PRIORITY": priority}
        for name, value in variables.items():
            monkeypatch.setenv(name, value)

    def make_client(self, folder: Path) -> RegisteredClient:
        return RegisteredClient(
            backend="pathways", accelerator=self.accelerator, container_image=self.image,
            memory="128Mi", pod_overrides=small(),
        )  # fmt: skip


class TestOnACluster(OnACluster, BackendContract, BackendQueue, BackendTrust):
    def make_client(self, folder: Path) -> RegisteredClient:
        return RegisteredClient(
            backend="gke",
            accelerator="cpu",
            container_image=self.image,
            memory="256Mi",
            pod_overrides=small(),
        )

    @contextmanager
    def refusing_starts(self, client: RegisteredClient) -> Iterator[None]:
        # The Job is created, and the ConfigMap with its runner is refused. The check before the start would find
        # that, unless this process has checked such a job.
        checked = client.submit(client.functions.describe)
        checked.cancel()
        checked.cleanup()
        one = "kube-root-ca.crt"
        # Tests that ran before in this namespace leave failed jobs and ConfigMaps, some without an owner.
        for kind in ("jobset", "configmap"):
            path = self.bed.path_of(kind, self.namespace)
            self.bed.ask("DELETE", path, propagationPolicy="Background")
        self.wait_for(lambda: self.names("configmap") == [one])
        quotas = self.bed.path_of("resourcequota", self.namespace)
        spec = {"hard": {"count/configmaps": "1"}}
        self.bed.ask("POST", quotas, body={"metadata": {"name": "full"}, "spec": spec})
        quota = f"{quotas}/full"
        self.wait_for(lambda: "used" in self.bed.ask("GET", quota)["status"])
        try:
            yield
        finally:
            self.bed.ask("DELETE", quota)

    @contextmanager
    def full(self, client: RegisteredClient) -> Iterator[Mapping[str, Any]]:
        yield {"memory": "1000Ti"}

    def names(self, kind: str) -> list[str]:
        return [each["metadata"]["name"] for each in self.bed.objects(kind, self.namespace)]
