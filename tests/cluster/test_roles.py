"""`docs/roles.yaml`: with that role, jobs of every form are created and removed; without a part of it, not."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from pods import small

from kinetic.waiting import sleep
from kinetic_k8s.accelerators import parse_accelerator
from kinetic_k8s.cluster.client import ApiServer
from kinetic_k8s.cluster.connection import Credentials
from kinetic_k8s.cluster.creation import Runner, check_workload, create_workload, ensure_key
from kinetic_k8s.cluster.removal import remove_workload
from kinetic_k8s.errors import NotPermittedError
from kinetic_k8s.manifests import Manifest
from kinetic_k8s.manifests.components import PathwaysComponents
from kinetic_k8s.manifests.job import IndexedJobSpec, JobSpec
from kinetic_k8s.manifests.jobset import JobSetSpec
from kinetic_k8s.manifests.labels import of_job
from kinetic_k8s.manifests.names import KEY_SECRET
from kinetic_k8s.manifests.pathways import LeaderWorkerSetSpec
from kinetic_k8s.manifests.spec import WorkloadSpec

ROLES = Path(__file__).parents[2] / "docs" / "roles.yaml"
RBAC = "rbac.authorization.k8s.io"
USER = "ada@example.com"
NEEDED: dict[type[WorkloadSpec], list[tuple[str, str]]] = {
    JobSpec: [
        *(("secrets", verb) for verb in ("get", "create")),
        *(("configmaps", verb) for verb in ("get", "create", "patch")),
    ],
    IndexedJobSpec: [
        ("services", "create"),
        *(("jobs", verb) for verb in ("create", "patch", "delete")),
        *(("pods", verb) for verb in ("list", "delete")),
    ],
    JobSetSpec: [("jobsets", verb) for verb in ("create", "get", "patch", "delete")],
    LeaderWorkerSetSpec: [
        ("leaderworkersets", verb) for verb in ("create", "get", "patch", "delete")
    ],
}


@dataclass(frozen=True)
class Ada:
    """A user with a role of the file."""

    bed: Any
    namespace: str
    administrator: ApiServer
    cluster: ApiServer
    make: Callable[..., JobSpec]
    role: Manifest

    def may(self, form: type[WorkloadSpec], *, all_but: tuple[str, str] = ("", "")) -> None:
        """Give her the role of the file, without a verb on a resource."""
        resource, verb = all_but
        rules = [
            {**rule, "verbs": [each for each in rule["verbs"] if each != verb]}
            if resource in rule["resources"]
            else rule
            for rule in self.role["rules"]
        ]
        role = {**self.role, "rules": [rule for rule in rules if rule["verbs"]]}
        path = self.bed.path_of("role", self.namespace, role["metadata"]["name"])
        self.bed.ask("PUT", path, body=role)
        # The API server learns of the change a moment later.
        for each in [all_but] if any(all_but) else NEEDED[form]:
            while self.is_permitted(*each) is (each == all_but):
                sleep(0.1)

    def is_permitted(self, resource: str, verb: str) -> bool:
        groups = {
            name: rule["apiGroups"][0] for rule in self.role["rules"] for name in rule["resources"]
        }
        attributes = {
            "namespace": self.namespace, "verb": verb, "resource": resource, "group": groups[resource]
        }  # fmt: skip
        review = {"spec": {"user": USER, "resourceAttributes": attributes}}
        path = "apis/authorization.k8s.io/v1/subjectaccessreviews"
        return bool(self.bed.ask("POST", path, body=review)["status"]["allowed"])

    def use(self, form: type[WorkloadSpec]) -> None:
        """Create a job of that form with all it needs, and remove it; its pods never start."""
        more = {}
        if form is LeaderWorkerSetSpec:
            more["components"] = PathwaysComponents(scratch="gs://bucket/scratch")
        overrides = small(tolerations=())
        job = self.make("pass", accelerator=parse_accelerator("v4-8"), overrides=overrides)
        spec = form(name=job.name, pod=job.pod, **more)
        content = job.name.encode()
        seconds = iter(range(0, 100, 10))
        self.administrator.delete("Secret", KEY_SECRET)
        ensure_key(self.cluster, lambda: b"k" * 32)
        create_workload(
            self.cluster,
            spec,
            environment={"A": "1"},
            # It is uploaded, so the job is created suspended and then resumed.
            runner=Runner(digest=job.name * 4, name="runner", content=content),
            clock=lambda: next(seconds),
        )
        labels = of_job(spec.pod.job_id)
        while not self.cluster.list("Pod", labels=labels):
            sleep(0.1)
        remove_workload(self.cluster, spec.kind, spec.name, pods=labels, timeout=60)

    def use_until_refused(self, form: type[WorkloadSpec]) -> None:
        """Use the role again and again: pods are deleted only if they have not disappeared with their job."""
        while True:
            self.use(form)


@pytest.fixture
def ada(
    bed: Any, namespace: str, cluster: ApiServer, a_job: Callable[..., JobSpec]
) -> Iterator[Ada]:
    access = bed.access(namespace)
    headers = {**access.credentials().headers, "Impersonate-User": USER}
    user = replace(access, credentials=lambda: Credentials(headers=headers))
    role, *_ = yaml.safe_load_all(ROLES.read_text())
    binding = {
        "metadata": {"name": "kinetic-users"},
        "roleRef": {"apiGroup": RBAC, "kind": "Role", "name": role["metadata"]["name"]},
        "subjects": [{"apiGroup": RBAC, "kind": "User", "name": USER}],
    }
    with ExitStack() as created:
        for kind, body in (("role", role), ("rolebinding", binding)):
            path = bed.path_of(kind, namespace)
            bed.ask("POST", path, body=body)
            created.callback(bed.ask, "DELETE", f"{path}/{body['metadata']['name']}")
        yield Ada(bed, namespace, cluster, ApiServer(user), a_job, role)
    for kind in ("job", "jobset", "leaderworkerset"):
        ours = {"labelSelector": "app in (kinetic,kinetic-pathways)"}
        bed.ask("DELETE", bed.path_of(kind, namespace), propagationPolicy="Background", **ours)


@pytest.mark.parametrize("form", [JobSpec, IndexedJobSpec, JobSetSpec, LeaderWorkerSetSpec])
def test_the_documented_role_permits_all_and_an_error_names_a_missing_verb(
    form: type[WorkloadSpec], ada: Ada
) -> None:
    for resource, verb in NEEDED[form]:
        ada.may(form, all_but=(resource, verb))
        with pytest.raises(NotPermittedError) as caught:
            ada.use_until_refused(form)
        assert (caught.value.resource.partition(".")[0], caught.value.verb) == (resource, verb)
        assert f"permits {verb!r} on '{caught.value.resource}'" in (caught.value.hint or "")
    ada.may(form)
    ada.use(form)


@pytest.mark.parametrize(
    ("form", "resource"),
    [(JobSpec, "secrets"), (JobSpec, "configmaps"), (IndexedJobSpec, "services")],
)
def test_a_check_finds_missing_permission_for_the_objects_of_a_workload(
    form: type[WorkloadSpec], resource: str, ada: Ada
) -> None:
    def check() -> WorkloadSpec:
        job = ada.make("pass", accelerator=parse_accelerator("v4-8"))
        spec = form(name=job.name, pod=job.pod)
        check_workload(ada.cluster, spec, environment=True, runner=True)
        return spec

    ada.may(form)
    spec = check()
    ada.may(form, all_but=(resource, "create"))

    with pytest.raises(NotPermittedError) as caught:
        check()

    assert (caught.value.resource, caught.value.verb) == (resource, "create")
    assert ada.administrator.get(spec.kind, spec.name) is None
