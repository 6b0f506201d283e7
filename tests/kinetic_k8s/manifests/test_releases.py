from __future__ import annotations

import pytest

from kinetic_k8s.cluster.resources import kind_of
from kinetic_k8s.manifests import Manifest
from kinetic_k8s.manifests.releases import JOBSET, KUEUE, LWS, Release, release_manifests

releases = pytest.mark.parametrize("release", [JOBSET, LWS, KUEUE], ids=lambda each: each.project)


def named(release: Release, kind: str, name: str) -> Manifest:
    (found,) = [
        each
        for each in release_manifests(release)
        if (each["kind"], each["metadata"]["name"]) == (kind, name)
    ]
    return found


@releases
def test_each_object_is_known_is_marked_and_follows_those_that_it_needs(release: Release) -> None:
    found = release_manifests(release)
    kinds = [each["kind"] for each in found]

    assert kinds[:2] == ["Namespace", "CustomResourceDefinition"]
    assert kinds[-3:] == [
        "Deployment",
        "MutatingWebhookConfiguration",
        "ValidatingWebhookConfiguration",
    ]
    assert named(release, "CustomResourceDefinition", release.definition)
    for each in found:
        kind = kind_of(each["kind"])
        assert each["apiVersion"] == kind.api
        namespace = each["metadata"].get("namespace")
        assert namespace == (release.namespace if kind.namespaced else None)
        assert each["metadata"]["annotations"][release.installed] == release.version


@releases
def test_the_controller_finds_its_account_configuration_and_certificate(release: Release) -> None:
    pod = named(release, "Deployment", release.controller)["spec"]["template"]
    spec = pod["spec"]
    configuration, certificate = spec["volumes"]
    (container,) = spec["containers"]

    project = release.project
    assert container["image"] == f"registry.k8s.io/{project}/{project}:{release.version}"
    assert named(release, "ServiceAccount", spec["serviceAccountName"])
    assert named(release, "Secret", certificate["secret"]["secretName"])
    (file,) = named(release, "ConfigMap", configuration["configMap"]["name"])["data"]
    assert f"--config=/{file}" in container["args"]


@releases
def test_each_webhook_leads_to_the_controller(release: Release) -> None:
    pod = named(release, "Deployment", release.controller)["spec"]["template"]
    hooks = [
        hook
        for each in release_manifests(release)
        if each["kind"].endswith("WebhookConfiguration")
        for hook in each["webhooks"]
    ]
    (container,) = pod["spec"]["containers"]

    assert len(hooks) >= 4
    for hook in hooks:
        service = named(release, "Service", hook["clientConfig"]["service"]["name"])
        assert service["spec"]["selector"].items() <= pod["metadata"]["labels"].items()
        assert service["spec"]["ports"][0]["targetPort"] == container["ports"][0]["containerPort"]
