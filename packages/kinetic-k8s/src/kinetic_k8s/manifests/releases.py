"""Releases of add-ons that Kinetic installs on a cluster: JobSet, LeaderWorkerSet (LWS), and Kueue.

All three (https://github.com/kubernetes-sigs) are licensed under Apache-2.0, like this package.

- `jobset.json`, `lws.json` and `kueue.json` have the definitions, the roles, the namespace and the webhooks: what `kubectl
  kustomize config/default` made of the source of the release, without the descriptions in the schemas.
- The controller's Deployment, its configuration, its two Services and the Secret of its certificate are written here,
  by what that source, and the manifests that others publish of it, say of them: names, image, ports, arguments, probes,
  resources. The controller fills the Secret and the webhooks' `caBundle` itself.

Together they stand for the `manifests.yaml` of a release. They were not compared with that file, which may differ in
labels and in the resources of the controller. The controllers of these versions accept their configuration; on the test
cluster they ran with these objects, but outside of it and with other certificates. Kueue's server for pending workloads
(VisibilityOnDemand), which needs a registered API of its own, is off.

Autopilot makes a machine for a controller. Where all machines are tainted, as on a Standard cluster with nothing but
accelerators, it needs tolerations that the releases do not have: Google's cluster-toolkit adds those of
`nvidia.com/gpu` and of `components.gke.io/gke-managed-components`. Kinetic's clusters need neither.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field
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
    api: str
    """Of its configuration."""
    settings: Manifest = field(default_factory=dict, hash=False)
    """More of its configuration."""
    resources: Manifest = field(hash=False)

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
    digest="d43457513798e6df204054b2c0735e2301617dae4da7ba78cacdf0f050c57753",
    api="config.jobset.x-k8s.io/v1alpha1",
    resources={"requests": {"cpu": "500m", "memory": "128Mi"}, "limits": {"memory": "4Gi"}},
)
LWS: Final = Release(
    name="LeaderWorkerSet",
    project="lws",
    version="v0.10.0",
    definition="leaderworkersets.leaderworkerset.x-k8s.io",
    digest="ff8a07899d8c8feede018d78bf00c6265e33656dca699f6a2d33272290c89d47",
    api="config.lws.x-k8s.io/v1alpha1",
    resources={"requests": {"cpu": "1", "memory": "1Gi"}},
)
KUEUE: Final = Release(
    name="Kueue",
    project="kueue",
    version="v0.19.2",
    definition="clusterqueues.kueue.x-k8s.io",
    digest="fa4441d8576e771498f67664bb5dccb7fcf7bc803ee2320ac7f1b9480b357a1a",
    api="config.kueue.x-k8s.io/v1beta2",
    settings={
        "health": {"healthProbeBindAddress": ":8081"},
        "metrics": {"bindAddress": ":8443"},
        "webhook": {"port": 9443},
        "featureGates": {"VisibilityOnDemand": False},
        "integrations": {
            "frameworks": [
                "batch/job",
                "jobset.x-k8s.io/jobset",
                "leaderworkerset.x-k8s.io/leaderworkerset",
                "pod",
                "deployment",
                "statefulset",
            ]
        },
    },
    resources={
        "requests": {"cpu": "500m", "memory": "512Mi"},
        "limits": {"cpu": "2", "memory": "512Mi"},
    },
)
ADDONS: Final = {"lws": LWS, "kueue": KUEUE}
"""Those that are installed only when they are asked for, in this order."""
_ORDER: Final = (
    "Namespace",
    "CustomResourceDefinition",
    "ServiceAccount",
    "Role",
    "ClusterRole",
    "RoleBinding",
    "ClusterRoleBinding",
    "ConfigMap",
    "Secret",
    "Service",
    "Deployment",
    # They refuse JobSets until the controller runs.
    "MutatingWebhookConfiguration",
    "ValidatingWebhookConfiguration",
)
PODS: Final = {"control-plane": "controller-manager"}
"""The labels of the pods of a controller."""
_CONFIGURATION: Final = "controller_manager_config.yaml"
_HEALTH_PORT: Final = 8081
_METRICS_PORT: Final = 8443
_WEBHOOK_PORT: Final = 9443


def release_manifests(release: Release) -> list[Manifest]:
    """Return the objects of *release* in the order in which they are applied, with Kinetic's annotation.

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
    # What it has elsewhere is for the part of Kueue that is off.
    own = (None, release.namespace)
    found: list[Manifest] = [
        *(each for each in json.loads(data) if each["metadata"].get("namespace") in own),
        *_controller(release),
    ]
    for each in found:
        each["metadata"].setdefault("annotations", {})[release.installed] = release.version
    return sorted(found, key=lambda each: _ORDER.index(each["kind"]))


def _controller(release: Release) -> list[Manifest]:
    settings = {
        "apiVersion": release.api,
        "kind": "Configuration",
        "leaderElection": {"leaderElect": True},
        "internalCertManagement": {"enable": True},
        **release.settings,
    }
    return [
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": _metadata(release, "manager-config", "manager"),
            "data": {_CONFIGURATION: json.dumps(settings, indent=2)},
        },
        {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": _metadata(release, "webhook-server-cert", "webhook"),
        },
        _service(release, "webhook-service", "webhook", {"port": 443, "targetPort": _WEBHOOK_PORT}),
        _service(
            release,
            "controller-manager-metrics-service",
            "manager",
            {"name": "https", "port": _METRICS_PORT, "targetPort": _METRICS_PORT},
        ),
        {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": _metadata(release, "controller-manager", "manager"),
            "spec": {
                "replicas": 1,
                "selector": {"matchLabels": PODS},
                "template": {
                    "metadata": {
                        "labels": PODS,
                        "annotations": {"kubectl.kubernetes.io/default-container": "manager"},
                    },
                    "spec": _pod(release),
                },
            },
        },
    ]


def _service(release: Release, name: str, component: str, port: Manifest) -> Manifest:
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": _metadata(release, name, component),
        "spec": {"selector": PODS, "ports": [{**port, "protocol": "TCP"}]},
    }


def _metadata(release: Release, name: str, component: str) -> Manifest:
    parts = dict.fromkeys(("name", "instance", "part-of"), release.project)
    parts["component"] = component
    labels = {f"app.kubernetes.io/{key}": value for key, value in parts.items()}
    return {
        "name": f"{release.project}-{name}",
        "namespace": release.namespace,
        "labels": labels,
    }


def _pod(release: Release) -> Manifest:
    project = release.project
    return {
        "serviceAccountName": release.controller,
        "terminationGracePeriodSeconds": 10,
        "securityContext": {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}},
        "containers": [
            {
                "name": "manager",
                "image": f"registry.k8s.io/{project}/{project}:{release.version}",
                "command": ["/manager"],
                "args": [f"--config=/{_CONFIGURATION}", "--zap-log-level=2"],
                "ports": [
                    {"name": "webhook-server", "containerPort": _WEBHOOK_PORT, "protocol": "TCP"}
                ],
                "livenessProbe": {
                    "httpGet": {"path": "/healthz", "port": _HEALTH_PORT},
                    "initialDelaySeconds": 15,
                    "periodSeconds": 20,
                },
                "readinessProbe": {
                    "httpGet": {"path": "/readyz", "port": _HEALTH_PORT},
                    "initialDelaySeconds": 5,
                    "periodSeconds": 10,
                },
                "resources": release.resources,
                "securityContext": {
                    "allowPrivilegeEscalation": False,
                    "readOnlyRootFilesystem": True,
                    "capabilities": {"drop": ["ALL"]},
                },
                "volumeMounts": [
                    {
                        "name": "manager-config",
                        "mountPath": f"/{_CONFIGURATION}",
                        "subPath": _CONFIGURATION,
                    },
                    {
                        "name": "cert",
                        "mountPath": "/tmp/k8s-webhook-server/serving-certs",  # noqa: S108 - in a container
                        "readOnly": True,
                    },
                ],
            }
        ],
        "volumes": [
            {"name": "manager-config", "configMap": {"name": f"{project}-manager-config"}},
            {"name": "cert", "secret": {"secretName": f"{project}-webhook-server-cert"}},
        ],
    }
