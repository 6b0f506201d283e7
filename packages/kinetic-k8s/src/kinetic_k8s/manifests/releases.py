"""Releases of add-ons that Kinetic installs on a cluster: JobSet, LeaderWorkerSet (LWS), and Kueue.

All three (https://github.com/kubernetes-sigs) are licensed under Apache-2.0, like this package.

`jobset.json`, `lws.json` and `kueue.json` stand for the `manifests.yaml` of a release, one object on each line:

- The definitions, the roles, the namespace and the webhooks are what `kubectl kustomize config/default` made of the source
  of the release, without the descriptions in the schemas.
- The controller's Deployment, its configuration, its two Services and the Secret of its certificate follow what that source,
  and the manifests that others publish of it, say of them: names, image, ports, arguments, probes, resources. The
  controller fills the Secret and the webhooks' `caBundle` itself.

They were not compared with that file, which may differ in labels and in the resources of the controller. The controllers of
these versions accept their configuration; on the test cluster they ran with these objects, but outside of it and with other
certificates. Kueue's server for pending workloads (VisibilityOnDemand), which needs a registered API of its own, is off,
and what it needs in other namespaces is left out.

Autopilot makes a machine for a controller. Where all machines are tainted, as on a Standard cluster with nothing but
accelerators, it needs tolerations that the releases do not have: Google's cluster-toolkit adds those of
`nvidia.com/gpu` and of `components.gke.io/gke-managed-components`. Kinetic's clusters need neither.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from importlib.resources import files
from typing import Final

from kinetic_k8s.errors import InvalidManifestError
from kinetic_k8s.manifests import Manifest
from kinetic_k8s.manifests.labels import PREFIX


@dataclass(frozen=True, kw_only=True)
class Release:
    """One version of an add-on."""

    name: str
    project: str
    """Its image, its namespace and its objects are named after it."""
    version: str
    definition: str
    """The definition of the objects by which a cluster is known to have it."""
    digest: str
    """That of the file with its objects, as SHA-256."""

    @property
    def namespace(self) -> str:
        """The namespace of the controller."""
        return f"{self.project}-system"

    @property
    def controller(self) -> str:
        """The name of the Deployment, and of its service account."""
        return f"{self.project}-controller-manager"

    @property
    def installed(self) -> str:
        """The annotation of all that Kinetic installed, with the version."""
        return f"{PREFIX}{self.project}-version"


JOBSET: Final = Release(
    name="JobSet",
    project="jobset",
    version="v0.12.0",
    definition="jobsets.jobset.x-k8s.io",
    digest="9fe583c43d48defedc2cd693d3d4fd6a46ed53ab586195dc3caa8dcdbecd0b9e",
)
LWS: Final = Release(
    name="LeaderWorkerSet",
    project="lws",
    version="v0.10.0",
    definition="leaderworkersets.leaderworkerset.x-k8s.io",
    digest="83381a5d1b92200edd852a8e58adb905b0615d6768472e47db8db6347345f62b",
)
KUEUE: Final = Release(
    name="Kueue",
    project="kueue",
    version="v0.19.2",
    definition="clusterqueues.kueue.x-k8s.io",
    digest="7f84e588c5bd2bd5d76d26871a7a1f186097f25387ccd9d6c5af6787b91dd2a0",
)
ADDONS: Final = {"lws": LWS, "kueue": KUEUE}
"""Those that are installed only when they are asked for, in this order."""
PODS: Final = {"control-plane": "controller-manager"}
"""The labels of the pods of a controller."""


def release_manifests(release: Release) -> list[Manifest]:
    """Return the objects of *release* in the order in which they are applied, with Kinetic's annotation.

    The webhooks come last: they refuse objects of the add-on until the controller runs.

    Raises:
        InvalidManifestError: The file of this package has been changed.
    """
    name = f"{release.project}.json"
    data = files(__package__).joinpath(name).read_bytes()
    if hashlib.sha256(data).hexdigest() != release.digest:
        raise InvalidManifestError(
            f"The file {name} of the package kinetic-k8s has been changed.",
            hint="Install the package again.",
        )
    found: list[Manifest] = json.loads(data)
    for each in found:
        each["metadata"].setdefault("annotations", {})[release.installed] = release.version
    return found
