"""Add-ons such as JobSet: whether a cluster has one, and its installation."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from kinetic_k8s.errors import (
    ClusterUnreachableError,
    ConflictError,
    StillThereError,
)
from kinetic_k8s.manifests import Manifest
from kinetic_k8s.manifests.releases import PODS, Release, release_manifests
from kinetic_k8s.reading.attempts import PodView, condition, is_true
from kinetic_k8s.reading.waiting import waiting_of
from kinetic_payload.threads import pause

if TYPE_CHECKING:
    from kinetic_k8s.cluster.client import ApiServer

_DEFINITION: Final = "CustomResourceDefinition"
_TRIES: Final = 300
_PAUSE: Final = 0.2
_TAG: Final = r"(?::(?P<tag>[^:/@]+))?(?:@.*)?"


@dataclass(frozen=True, kw_only=True)
class InstalledAddon:
    """An add-on as a cluster has it."""

    ours: bool
    """Whether Kinetic installed it."""
    version: str = ""
    """Such as `v0.12.0`; empty: it is not known, as its controller runs elsewhere."""
    newer: bool = False
    """Whether its version is later than the one that this package installs."""
    problem: str = ""
    """Why its controller does not run; empty: it does, or cannot be seen."""


def addon_of(
    release: Release,
    definition: Manifest,
    controllers: Sequence[Manifest] = (),
    pods: Sequence[Manifest] = (),
) -> InstalledAddon:
    """Decide what the definition of its objects, the Deployment of the controller and its pods show."""
    ours = release.installed in _annotations(definition)
    version = _annotations(definition).get(release.installed, "")
    problem = "Its installation was interrupted." if ours else ""
    for controller in controllers:
        version = _version_of(release, controller) or version
        problem = _problem_of(release, controller, pods)
    there, known = ([*map(int, re.findall(r"\d+", each))] for each in (version, release.version))
    return InstalledAddon(ours=ours, version=version, newer=there > known, problem=problem)


def installed_addon(cluster: ApiServer, release: Release) -> InstalledAddon | None:
    """Return the add-on as the cluster has it, or None if it does not, or if it is being removed."""
    definition = cluster.get(_DEFINITION, release.definition)
    if definition is None or _is_leaving(definition):
        return None
    if release.installed not in _annotations(definition):
        deployments = cluster.list("Deployment", everywhere=True)
        found = [each for each in deployments if _version_of(release, each)]
        return addon_of(release, definition, found[:1])
    system = cluster.in_namespace(release.namespace)
    controller = system.get("Deployment", release.controller)
    if controller is None:
        return addon_of(release, definition)
    labels = ",".join(f"{key}={value}" for key, value in PODS.items())
    return addon_of(release, definition, [controller], system.list("Pod", labels=labels))


def install_addon(cluster: ApiServer, release: Release) -> InstalledAddon:
    """Install an add-on unless the cluster has it; return it as the cluster has it then.

    One of others is left as it is, whatever its version, and so is a later version. An object of this version
    is left as well, with what an administrator has changed since. An installation that was interrupted continues.
    The controller starts later: `installed_addon` shows when it is ready.

    Raises:
        ConflictError: An object of others has the name of one of the add-on's, or others have changed an object that
            Kinetic installed in another version.
        StillThereError: An object is being deleted, and that does not end.
        NotPermittedError: The user is no administrator of the cluster.
    """
    found = installed_addon(cluster, release)
    if found is not None and (not found.ours or found.newer):
        return found
    system = cluster.in_namespace(release.namespace)
    for manifest in release_manifests(release):
        kind, name = manifest["kind"], manifest["metadata"]["name"]
        there = system.get(kind, name, brief=True)
        if there is not None and _is_leaving(there):
            if not _seen(lambda: system.get(kind, name, brief=True) is None):  # noqa: B023 - called here
                raise StillThereError(
                    f"{kind} {name} in {system.identity} is still being deleted.",
                    hint=f"Its status names what it waits for: kubectl get {kind} {name} -o yaml",
                )
            there = None
        if (
            there is None
            or _annotations(there).get(release.installed, release.version) != release.version
        ):
            system.apply(manifest)
        elif release.installed not in _annotations(there) and kind != "Namespace":
            raise ConflictError(
                f"{kind} {name} in {system.identity} exists, and Kinetic did not install it.",
                hint=f"It belongs to another installation of {release.name}. Complete or remove that one.",
            )
        if kind == _DEFINITION and not _seen(
            lambda: is_true(system.get(_DEFINITION, name) or {}, "Established")  # noqa: B023
        ):
            raise ClusterUnreachableError(f"{system.identity.server} does not serve {name} yet.")
    found = installed_addon(cluster, release)
    if found is None:
        raise ConflictError(f"{release.name} was removed from {cluster.identity.server} meanwhile.")
    return found


def _seen(is_so: Callable[[], bool]) -> bool:
    """Return whether *is_so* becomes true within a minute."""
    for _ in range(_TRIES):
        if is_so():
            return True
        pause(_PAUSE)
    return False


def _is_leaving(manifest: Manifest) -> bool:
    return "deletionTimestamp" in manifest["metadata"]


def _annotations(manifest: Manifest) -> dict[str, str]:
    return manifest["metadata"].get("annotations") or {}


def _version_of(release: Release, controller: Manifest) -> str:
    """Return the version of the add-on that a Deployment runs; empty: it runs something else."""
    for container in controller["spec"]["template"]["spec"]["containers"]:
        if found := re.fullmatch(rf"(?:.*/)?{release.project}{_TAG}", container.get("image", "")):
            return str(found["tag"] or "unknown")
    return ""


def _problem_of(release: Release, controller: Manifest, pods: Sequence[Manifest]) -> str:
    """Return why no pod of *controller* is available; empty: one is."""
    status = controller.get("status") or {}
    if status.get("availableReplicas"):
        return ""
    for pod in pods:
        if found := waiting_of(PodView(pod), (), workload=release.controller):
            return found.reason
    for kind in ("ReplicaFailure", "Available"):
        if message := condition(controller, kind).get("message"):
            return str(message)
    return "The controller has not started yet."
