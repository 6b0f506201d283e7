"""A fake namespace of a cluster."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime

import pytest

from kinetic_k8s.cluster import Identity
from kinetic_k8s.errors import KindNotServedError, NotPermittedError
from kinetic_k8s.manifests import Manifest


class FakeCluster:
    """A namespace with some objects, whose requests are recorded.

    Kinds that are *not_served* can neither be listed nor created. The first deletions raise *errors*, one each.
    If *one_namespace*, objects of other namespaces may not be listed.
    """

    identity = Identity(server="https://cluster", namespace="team", context="the context")

    def __init__(
        self,
        *objects: Manifest,
        errors: Sequence[Exception] = (),
        served: Sequence[str] = (),
        not_served: Sequence[str] = (),
        one_namespace: bool = False,
        time: str = "2026-11-22T12:00:00Z",
    ) -> None:
        self.objects = list(objects)
        self.errors = list(errors)
        self.served = served
        self.not_served = not_served
        self.one_namespace = one_namespace
        self.time = time
        self.requests: list[str] = []
        self.deleted: list[str] = []

    def now(self) -> datetime:
        return datetime.fromisoformat(self.time)

    def within(self, seconds: float) -> FakeCluster:
        return self

    def serves(self, kind: str) -> bool:
        return kind in self.served

    def _require(self, kind: str) -> None:
        if kind in self.not_served:
            raise KindNotServedError(f"The cluster does not serve {kind}.")

    def list(self, kind: str, *, everywhere: bool = False, **selectors: object) -> list[Manifest]:
        self.requests.append(f"list {kind}")
        self._require(kind)
        if everywhere and self.one_namespace:
            raise NotPermittedError("Could not list them: forbidden (403).")
        return [one for one in self.objects if one["kind"] == kind]

    def get(self, kind: str, name: str, *, brief: bool = False) -> Manifest | None:
        self.requests.append(f"get {kind}")
        same = (one for one in self.objects if one["kind"] == kind)
        return next((one for one in same if one["metadata"]["name"] == name), None)

    def create(self, manifest: Manifest, *, dry_run: bool = False) -> Manifest:
        self._require(manifest["kind"])
        assert dry_run
        return manifest

    def delete(self, kind: str, name: str, *, uid: str | None = None, **how: object) -> bool:
        if self.errors:
            raise self.errors.pop(0)
        self.deleted.append(uid or "without its uid")
        self.objects = [one for one in self.objects if one["metadata"].get("uid") != uid]
        return True


@pytest.fixture
def cluster_with() -> Callable[..., FakeCluster]:
    return FakeCluster
