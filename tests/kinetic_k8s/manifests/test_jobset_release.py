from __future__ import annotations

from kinetic_k8s.cluster.resources import kind_of
from kinetic_k8s.manifests import Manifest
from kinetic_k8s.manifests.jobset_release import INSTALLED, JOBSET_VERSION, jobset_manifests


def named(kind: str, name: str) -> Manifest:
    (found,) = [
        each
        for each in jobset_manifests()
        if (each["kind"], each["metadata"]["name"]) == (kind, name)
    ]
    return found


def test_each_object_is_known_is_marked_and_follows_those_that_it_needs() -> None:
    kinds = [each["kind"] for each in jobset_manifests()]

    assert kinds[:2] == ["Namespace", "CustomResourceDefinition"]
    assert kinds[-3:] == [
        "Deployment",
        "MutatingWebhookConfiguration",
        "ValidatingWebhookConfiguration",
    ]
    assert len(kinds) == 20
    for each in jobset_manifests():
        kind = kind_of(each["kind"])
        assert each["apiVersion"] == kind.api
        assert each["metadata"].get("namespace") == ("jobset-system" if kind.namespaced else None)
        assert each["metadata"]["annotations"][INSTALLED] == JOBSET_VERSION


def test_the_controller_finds_its_account_configuration_and_certificate() -> None:
    pod = named("Deployment", "jobset-controller-manager")["spec"]["template"]
    spec = pod["spec"]
    configuration, certificate = spec["volumes"]
    (container,) = spec["containers"]

    assert container["image"] == f"registry.k8s.io/jobset/jobset:{JOBSET_VERSION}"
    assert named("ServiceAccount", spec["serviceAccountName"])
    assert named("Secret", certificate["secret"]["secretName"])
    (file,) = named("ConfigMap", configuration["configMap"]["name"])["data"]
    assert f"--config=/{file}" in container["args"]


def test_each_webhook_leads_to_the_controller() -> None:
    pod = named("Deployment", "jobset-controller-manager")["spec"]["template"]
    hooks = [
        hook
        for each in jobset_manifests()
        if each["kind"].endswith("WebhookConfiguration")
        for hook in each["webhooks"]
    ]
    (container,) = pod["spec"]["containers"]

    assert len(hooks) == 4
    for hook in hooks:
        service = named("Service", hook["clientConfig"]["service"]["name"])
        assert service["spec"]["selector"].items() <= pod["metadata"]["labels"].items()
        assert service["spec"]["ports"][0]["targetPort"] == container["ports"][0]["containerPort"]
