"""Buckets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, ClassVar, Final

from google.api_core import exceptions
from google.auth.credentials import AnonymousCredentials
from google.cloud import storage  # type: ignore[attr-defined]

from kinetic.errors import ProvisioningError
from kinetic.provisioning.edge import MARK, Edge, Needs
from kinetic.provisioning.google.cloud import Cloud
from kinetic.provisioning.google.projects import missing_in_project
from kinetic.provisioning.plan import Actual, Resource
from kinetic.retention.ages import Expiry
from kinetic_payload.layout import Env
from kinetic_payload.threads import parallel_map

_EMULATOR: Final = "STORAGE_EMULATOR_HOST"
_DELETIONS: Final = 32
"""Objects that are deleted at once."""


class BucketsEdge(Edge):
    """Makes buckets with uniform access that nobody can open to the public."""

    fixed = frozenset({"location"})
    needs: ClassVar[Needs] = {
        "create": ("storage.buckets.create", "storage.buckets.get"),
        "change": ("storage.buckets.update",),
        "delete": ("storage.buckets.delete", "storage.objects.list", "storage.objects.delete"),
    }

    def __init__(self, cloud: Cloud, cluster: str, *, contents: bool = False) -> None:
        """Take the project and the name of the cluster; with *contents*, `read` says whether a bucket holds objects."""
        super().__init__(cloud, cluster)
        self._contents = contents

    def read(self, resource: Resource) -> Actual | None:
        """Return the bucket."""
        what, limits = f"read the {resource.id}", {"timeout": self._cloud.timeout, "retry": None}
        try:
            found = self._cloud.ask(what, lambda: self.client.get_bucket(resource.name, **limits))
        except PermissionError as error:
            missing = list[str]()
            with suppress(ProvisioningError):  # The API that tells is not enabled.
                missing = missing_in_project(self._cloud, ["storage.buckets.get"])
            if missing:
                raise
            # A name is taken in all projects at once.
            return Actual(ours=False, detail=str(error).partition("\n")[0].rstrip("."))
        if found is None:
            return None
        objects = None
        if self._contents:
            objects = self._cloud.ask(
                what,
                lambda: [*self.client.list_blobs(found, max_results=1, versions=True, **limits)],
            )
        access = found.iam_configuration
        days = (found.soft_delete_policy.retention_duration_seconds or 0) // 86400
        known = _patterns(found)
        return Actual(
            settings={
                "location": found.location,
                "uniform_access": access.uniform_bucket_level_access_enabled,
                "public_access": access.public_access_prevention,
                # A longer one is the user's choice, as is a rule with other days.
                "soft_delete_days": min(days, resource.settings.get("soft_delete_days", days)),
                "delete_after_days": tuple(
                    each
                    for each in resource.settings.get("delete_after_days", ())
                    if each[0] in known
                ),
            },
            # Who guesses the name of a bucket may make it, with these labels, in another project.
            ours=found.labels.get(MARK) == self._name
            and str(found.project_number) == self._cloud.number,
            detail="it holds objects" if objects else "",
        )

    def create(self, resource: Resource) -> None:
        """Make the bucket."""
        bucket = self.client.bucket(resource.name)
        self._set(bucket, resource)

        def create() -> None:
            try:
                bucket.create(
                    location=resource.settings["location"], timeout=self._cloud.timeout, retry=None
                )
            except exceptions.Conflict:
                # The request before this one may have succeeded.
                if self.read(resource) is None:
                    raise

        self._cloud.change(f"create the {resource.id}", create)

    def change(self, resource: Resource) -> None:
        """Give the bucket the settings that are wanted; its lifecycle rules stay."""

        def change() -> None:
            bucket = self.client.get_bucket(resource.name, timeout=self._cloud.timeout, retry=None)
            self._set(bucket, resource)
            bucket.patch(
                timeout=self._cloud.timeout,
                retry=None,
                if_metageneration_match=bucket.metageneration,
            )

        self._cloud.change(f"change the {resource.id}", change)

    def delete(self, resource: Resource) -> None:
        """Delete the bucket, with all its objects unless they are a reason to keep it."""
        bucket = self.client.bucket(resource.name)

        def remove(blob: Any) -> None:
            with suppress(exceptions.NotFound):
                blob.delete(timeout=self._cloud.timeout)

        def delete() -> None:
            with suppress(exceptions.NotFound):
                if not resource.kept:
                    found = self.client.list_blobs(
                        resource.name, versions=True, timeout=self._cloud.timeout
                    )
                    parallel_map(remove, found, threads=_DELETIONS)
                bucket.delete(timeout=self._cloud.timeout, retry=None)

        self._cloud.change(f"delete the {resource.id}", delete)

    def _set(self, bucket: Any, resource: Resource) -> None:
        wanted = resource.settings
        bucket.labels = {**(bucket.labels or {}), MARK: self._name}
        bucket.iam_configuration.uniform_bucket_level_access_enabled = wanted["uniform_access"]
        bucket.iam_configuration.public_access_prevention = wanted["public_access"]
        kept = bucket.soft_delete_policy.retention_duration_seconds or 0
        bucket.soft_delete_policy.retention_duration_seconds = max(
            kept, wanted["soft_delete_days"] * 86400
        )
        known = _patterns(bucket)
        for pattern, days in wanted["delete_after_days"]:
            name = (
                {"matches_suffix": [pattern[1:]]}
                if pattern[0] == "*"
                else {"matches_prefix": [pattern]}
            )
            if pattern not in known:
                bucket.add_lifecycle_delete_rule(age=days, **name)

    @property
    def client(self) -> storage.Client:
        """Google's client."""
        return storage_client(self._cloud)


def storage_client(cloud: Cloud) -> storage.Client:
    """Return the client of the storage service."""

    def make(*, credentials: Any, client_options: Any) -> storage.Client:  # noqa: ARG001
        variables = cloud.variables
        if variables.get(_EMULATOR):
            return storage.Client(cloud.project, credentials=AnonymousCredentials())  # type: ignore[no-untyped-call]
        endpoint = variables.get(Env.STORAGE_ENDPOINT)
        options = {"api_endpoint": endpoint} if endpoint else None
        return storage.Client(cloud.project, credentials=credentials, client_options=options)

    return cloud.client("storage", make)


def missing_on_bucket(cloud: Cloud, bucket: str, permissions: Sequence[str]) -> list[str]:
    """Return which of *permissions* the user does not have on a bucket; all if it does not exist."""
    client = storage_client(cloud)
    granted = cloud.ask(
        f"see what you may do with the bucket {bucket}",
        lambda: client.bucket(bucket).test_iam_permissions(
            list(permissions), timeout=cloud.timeout, retry=None
        ),
    )
    return [each for each in permissions if each not in (granted or ())]


def _patterns(bucket: Any) -> set[str]:
    """Return the patterns of names that a rule of their own deletes by their age, as Kinetic writes rules."""
    rules = map(deletions_of, bucket.lifecycle_rules)
    return {found[0][0] for found in rules if len(found) == 1 and found[0][0]}


def deletions_of(rule: Mapping[str, Any]) -> Expiry:
    """Return which names a lifecycle rule deletes after how many days; a rule of another kind deletes none."""
    condition = dict(rule.get("condition", {}))
    days = condition.pop("age", None)
    prefixes, suffixes = (condition.pop(f"matches{end}", []) for end in ("Prefix", "Suffix"))
    # Other conditions are those of earlier versions, or of dates and storage classes.
    if rule["action"]["type"] != "Delete" or days is None or condition or (prefixes and suffixes):
        return ()
    names = [*prefixes, *(f"*{suffix}" for suffix in suffixes)] or [""]
    return [(name, int(days)) for name in names]
