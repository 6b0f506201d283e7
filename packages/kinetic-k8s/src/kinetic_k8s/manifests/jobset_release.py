"""What JobSet's release 0.12.0 installs on a cluster: the definition of JobSets, and the controller that runs them.

JobSet (https://github.com/kubernetes-sigs/jobset) is licensed under Apache-2.0, like this package.

- `jobset_release.json` has the definition, the roles, the namespace and the webhooks: what `kubectl kustomize
  config/default` made of the release's source, without the descriptions in the schema.
- The controller's Deployment, its configuration, its two Services and the Secret of its certificate are written here,
  by what that source, and the manifests that others publish of it, say of them: names, image, ports, arguments, probes,
  resources. The controller fills the Secret and the webhooks' `caBundle` itself.

Together they stand for the release's `manifests.yaml`. They were not compared with that file, which may differ in labels
and in the resources of the controller. With them, the controller of 0.12.0 ran JobSets on the test cluster.

Autopilot makes a machine for the controller. Where all machines are tainted, as on a Standard cluster with nothing but
accelerators, it needs tolerations that the release does not have: Google's cluster-toolkit adds those of
`nvidia.com/gpu` and of `components.gke.io/gke-managed-components`. Kinetic's clusters need neither.
"""

from __future__ import annotations

import hashlib
import json
from importlib.resources import files
from typing import Final

from kinetic_k8s.errors import InvalidManifestError
from kinetic_k8s.manifests import Manifest
from kinetic_k8s.manifests.labels import PREFIX

JOBSET_VERSION: Final = "v0.12.0"
JOBSET_NAMESPACE: Final = "jobset-system"
JOBSET_CONTROLLER: Final = "jobset-controller-manager"
"""The name of its Deployment, and of its service account."""
JOBSET_DEFINITION: Final = "jobsets.jobset.x-k8s.io"
INSTALLED: Final = f"{PREFIX}jobset-version"
"""The annotation of all that Kinetic installed, with the version."""
_FILE: Final = "jobset_release.json"
_DIGEST: Final = "d43457513798e6df204054b2c0735e2301617dae4da7ba78cacdf0f050c57753"
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
JOBSET_PODS: Final = {"control-plane": "controller-manager"}
"""The labels of its pods."""
_CONFIGURATION: Final = "controller_manager_config.yaml"
_CONFIG_MAP: Final = "jobset-manager-config"
_CERTIFICATE: Final = "jobset-webhook-server-cert"
_HEALTH_PORT: Final = 8081
_METRICS_PORT: Final = 8443
_WEBHOOK_PORT: Final = 9443


def jobset_manifests() -> list[Manifest]:
    """Return the objects of JobSet's release in the order in which they are applied, with Kinetic's annotation.

    Raises:
        InvalidManifestError: The file of this package has been changed.
    """
    data = files(__package__).joinpath(_FILE).read_bytes()
    if hashlib.sha256(data).hexdigest() != _DIGEST:
        raise InvalidManifestError(
            f"The file {_FILE} of the package kinetic-k8s has been changed.",
            hint="Install the package again.",
        )
    found: list[Manifest] = [*json.loads(data), *_controller()]
    for each in found:
        each["metadata"].setdefault("annotations", {})[INSTALLED] = JOBSET_VERSION
    return sorted(found, key=lambda each: _ORDER.index(each["kind"]))


def _controller() -> list[Manifest]:
    return [
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": _metadata(_CONFIG_MAP, "manager"),
            "data": {_CONFIGURATION: json.dumps(_SETTINGS, indent=2)},
        },
        {"apiVersion": "v1", "kind": "Secret", "metadata": _metadata(_CERTIFICATE, "webhook")},
        _service("jobset-webhook-service", "webhook", {"port": 443, "targetPort": _WEBHOOK_PORT}),
        _service(
            "jobset-controller-manager-metrics-service",
            "manager",
            {"name": "https", "port": _METRICS_PORT, "targetPort": _METRICS_PORT},
        ),
        {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": _metadata(JOBSET_CONTROLLER, "manager"),
            "spec": {
                "replicas": 1,
                "selector": {"matchLabels": JOBSET_PODS},
                "template": {
                    "metadata": {
                        "labels": JOBSET_PODS,
                        "annotations": {"kubectl.kubernetes.io/default-container": "manager"},
                    },
                    "spec": _POD,
                },
            },
        },
    ]


def _service(name: str, component: str, port: Manifest) -> Manifest:
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": _metadata(name, component),
        "spec": {"selector": JOBSET_PODS, "ports": [{**port, "protocol": "TCP"}]},
    }


def _metadata(name: str, component: str) -> Manifest:
    parts = {"name": "jobset", "instance": "jobset", "part-of": "jobset", "component": component}
    labels = {f"app.kubernetes.io/{key}": value for key, value in parts.items()}
    return {"name": name, "namespace": JOBSET_NAMESPACE, "labels": labels}


_SETTINGS: Final = {
    "apiVersion": "config.jobset.x-k8s.io/v1alpha1",
    "kind": "Configuration",
    "leaderElection": {"leaderElect": True},
    "internalCertManagement": {"enable": True},
}
_POD: Final[Manifest] = {
    "serviceAccountName": JOBSET_CONTROLLER,
    "terminationGracePeriodSeconds": 10,
    "securityContext": {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}},
    "containers": [
        {
            "name": "manager",
            "image": f"registry.k8s.io/jobset/jobset:{JOBSET_VERSION}",
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
            "resources": {
                "requests": {"cpu": "500m", "memory": "128Mi"},
                "limits": {"memory": "4Gi"},
            },
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
        {"name": "manager-config", "configMap": {"name": _CONFIG_MAP}},
        {"name": "cert", "secret": {"secretName": _CERTIFICATE}},
    ],
}
