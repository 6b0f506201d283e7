"""A fake namespace of a cluster."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime

import pytest

from kinetic_k8s.cluster import Identity
from kinetic_k8s.errors import KindNotServedError
from kinetic_k8s.manifests import Manifest


class FakeCluster:
    """A namespace with some objects, whose requests are recorded.

    Kinds that are *not_served* cannot be listed. The first deletions raise *errors*, one each.
    """

    identity = Identity(server="https://cluster", namespace="team", context="the context")

    def __init__(
        self,
        *objects: Manifest,
        errors: Sequence[Exception] = (),
        not_served: Sequence[str] = (),
        time: str = "2026-11-22T12:00:00Z",
    ) -> None:
        self.objects = list(objects)
        self.errors = list(errors)
        self.not_served = not_served
        self.time = time
        self.requests: list[str] = []
        self.deleted: list[str] = []

    def now(self) -> datetime:
        return datetime.fromisoformat(self.time)

    def within(self, seconds: float) -> FakeCluster:
        return self

    def list(self, kind: str, **selectors: object) -> list[Manifest]:
        self.requests.append(f"list {kind}")
        if kind in self.not_served:
            raise KindNotServedError(f"The cluster does not serve {kind}.")
        return [one for one in self.objects if one["kind"] == kind]

    def get(self, kind: str, name: str, *, brief: bool = False) -> Manifest | None:
        self.requests.append(f"get {kind}")
        same = (one for one in self.objects if one["kind"] == kind)
        return next((one for one in same if one["metadata"]["name"] == name), None)

    def create(self, manifest: Manifest, *, dry_run: bool) -> Manifest:
        assert dry_run, "only the clock of the cluster is read"
        return {**manifest, "metadata": {**manifest["metadata"], "creationTimestamp": self.time}}

    def delete(self, kind: str, name: str, *, uid: str) -> None:
        if self.errors:
            raise self.errors.pop(0)
        self.deleted.append(uid)
        self.objects = [one for one in self.objects if one["metadata"].get("uid") != uid]


@pytest.fixture
def cluster_with() -> Callable[..., FakeCluster]:
    return FakeCluster
