"""`GoogleCloud`: all APIs that Kinetic calls to make what jobs need."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Self

import grpc

from kinetic_servers.gke import Authority, GoogleIdentity
from kinetic_servers.google.accounts import Accounts
from kinetic_servers.google.apis import Api, GoogleApis
from kinetic_servers.google.billing import Billing
from kinetic_servers.google.buckets import Buckets
from kinetic_servers.google.clusters import Clusters
from kinetic_servers.google.compute import ComputeService
from kinetic_servers.google.networks import Resource
from kinetic_servers.google.projects import Projects, Quotas, ServiceUsage
from kinetic_servers.google.repositories import Repositories
from kinetic_servers.google.state import KNOWN, Project, State
from kinetic_servers.http.server import HttpServer
from kinetic_servers.policies import new_etag


class _Compute(HttpServer):
    def __init__(self, service: ComputeService) -> None:
        super().__init__()
        self._service = service

    def service(self, folder: Path) -> ComputeService:
        return self._service


class GoogleCloud(State):
    """Google Cloud for tests, as in the documentation of this package. Use it in a `with` block.

    *folder* gets the files to which `environment` points. *api_server* returns the URL and the certificates (as
    PEM) of the API server of a new cluster. *token* is what its service account gets for them; None: a new one
    each time. Buckets are served on *host*.
    """

    def __init__(
        self,
        folder: Path,
        *,
        authority: Authority | None = None,
        api_server: Callable[[Any], tuple[str, str]] = lambda _: ("https://127.0.0.1:1", ""),
        token: str | None = None,
        host: str = "127.0.0.1",
    ) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.authority = authority or Authority(folder)
        self.identity = GoogleIdentity(folder, token=token)
        super().__init__()
        apis: list[Api] = [
            ServiceUsage(self),
            Projects(self),
            Accounts(self),
            Repositories(self),
            Clusters(self, api_server),
            Quotas(self),
            Billing(self),
        ]
        self.grpc = GoogleApis(self, self.authority, self.identity, apis)
        self.compute = _Compute(
            ComputeService(
                self, lambda token: self.identity.accepts(token, "https://compute.googleapis.com/")
            )
        )
        """Compute's REST API; it has `faults`."""
        self.buckets = Buckets(self, host=host)
        """The bucket server; it has `faults`, and the controls of `GcsServer`."""
        self.bucket_policies = self.buckets.policies
        self._running = ExitStack()

    def __enter__(self) -> Self:
        for each in (self.identity, self.grpc, self.compute, self.buckets):
            self._running.enter_context(each)
        return self

    def __exit__(self, *_: object) -> None:
        self._running.close()

    @property
    def environment(self) -> dict[str, str]:
        """The variables with which Google's libraries, and Kinetic, use this server.

        They must be set before a process uses gRPC for the first time.
        """
        apis = (
            *("ARTIFACTREGISTRY", "CLOUDBILLING", "CLOUDQUOTAS", "CLOUDRESOURCEMANAGER"),
            *("CONTAINER", "IAM", "SERVICEUSAGE"),
        )
        prefix = "CLOUDSDK_API_ENDPOINT_OVERRIDES_"
        return {
            "GOOGLE_APPLICATION_CREDENTIALS": str(self.identity.file),
            "GRPC_DEFAULT_SSL_ROOTS_FILE_PATH": str(self.authority.file),
            **{prefix + each: f"https://{self.grpc.endpoint}/" for each in apis},
            f"{prefix}COMPUTE": f"{self.compute.endpoint}/compute/v1/",
            **self.buckets.environment,
        }

    # --- What exists

    def add_project(self, name: str, *, number: int, apis: Iterable[str] = ()) -> None:
        """Add a project with the id *name*; *apis* are enabled, such as `compute.googleapis.com`."""
        enabled = {each.removesuffix(".googleapis.com"): 0 for each in apis}
        assert enabled.keys() <= KNOWN, "an API is unknown"
        with self.lock:
            self.projects[name] = Project(name, number, apis=enabled)
            policy = self.policy(name)
            policy.bindings.add(role="roles/owner", members=["user:owner@example.com"])
            policy.etag = new_etag()

    def delete_project(self, name: str) -> None:
        """Mark a project as deleted."""
        self.projects[name].deleted = True

    def add_disk(self, project: str, zone: str, name: str, **labels: str) -> None:
        """Add a disk, as a volume of a cluster leaves one."""
        made = Resource(project, f"zones/{zone}", "disks", {"name": name, "labels": labels})
        with self.lock:
            self.existing[made.key] = made

    def resources(self, project: str | None = None) -> list[str]:
        """Return the full names of everything that exists, in order.

        They are such as `compute/networks/NAME`, `container/clusters/LOCATION/NAME`, `storage/buckets/NAME`,
        `resourcemanager/bindings/ROLE/MEMBER`, without the bindings of owners.
        """
        names = [f"{owner}/storage/buckets/{name}" for owner, name in self.buckets.resources()]
        with self.lock:
            for key, found in self.existing.items():
                names.append(key)
                if "/container/clusters/" in key:
                    place = key.replace("/clusters/", "/nodePools/", 1)
                    names += [f"{place}/{each.name}" for each in found.node_pools]
            for each in self.projects.values():
                names += [
                    f"{each.id}/serviceusage/services/{api}.googleapis.com" for api in each.apis
                ]
                for binding in self.policy(each.id).bindings:
                    place = f"{each.id}/resourcemanager/bindings/{binding.role}"
                    if binding.role != "roles/owner":
                        names += [f"{place}/{member}" for member in binding.members]
            owned = [each.split("/", 1) for each in names]
            return sorted(
                name for owner, name in owned if owner in ({project} if project else self.projects)
            )

    # --- What will happen

    def fail(
        self,
        method: str,
        code: grpc.StatusCode | int,
        message: str = "injected",
        *,
        reason: str = "",
        times: int = 1,
        after: bool = False,
    ) -> None:
        """Let the next calls of *method* fail.

        Args:
            method: Of gRPC, `CreateCluster` or `Projects/SetIamPolicy`; of HTTP, `networks.insert` or
                `buckets.patch`.
            code: A code of gRPC, or a status of HTTP.
            message: The message of the error, of gRPC only.
            reason: The reason of an `ErrorInfo`, or of an error of HTTP.
            times: How many calls fail.
            after: Whether the call has its effect, and only its response is lost.
        """
        if isinstance(code, grpc.StatusCode):
            self.grpc.fail(method, code, message, reason=reason, times=times, after=after)
            return
        server = self.buckets if method.startswith("buckets.") else self.compute
        server.faults.add(operation=method, status=code, code=reason, times=times, performed=after)

    def fail_operation(self, method: str, message: str) -> None:
        """Let the next operation of *method* end with an error: `CreateCluster`, `routers.insert`."""
        with self.lock:
            self.failing.append((method, message))
