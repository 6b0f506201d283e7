"""The APIs of a project that are enabled."""

from __future__ import annotations

from typing import ClassVar, Final

from google.cloud import service_usage_v1

from kinetic.provisioning.edge import Edge, Needs
from kinetic.provisioning.plan import Actual, Resource

_MOST: Final = 20
"""https://cloud.google.com/service-usage/docs/reference/rest/v1/services/batchEnable"""


class ServicesEdge(Edge):
    """Enables APIs; never disables one, because others may use it."""

    needs: ClassVar[Needs] = dict.fromkeys(("create", "change"), ("serviceusage.services.enable",))

    def read(self, resource: Resource) -> Actual:
        """Return which of the APIs are enabled."""
        return Actual(settings={"enabled": self.read_enabled(*resource.settings["enabled"])})

    def read_enabled(self, *wanted: str) -> tuple[str, ...]:
        """Return which of the *wanted* APIs are enabled; there are at most 30."""
        parent = f"projects/{self._cloud.project}"
        names = [f"{parent}/services/{each}" for each in wanted]
        found = self._cloud.ask(
            f"see which APIs the project {self._cloud.project!r} has",
            self._client.batch_get_services,
            parent=parent,
            names=names,
        )
        enabled = []
        for each in found.services if found else ():
            # The answer names the project by its number: projects/NUMBER/services/NAME.
            _, self._cloud.number, _, name = each.name.split("/")
            if each.state == service_usage_v1.State.ENABLED:
                enabled.append(name)
        self._cloud.enabled = frozenset(enabled)
        return tuple(enabled)

    def create(self, resource: Resource) -> None:
        """Enable the APIs that are not enabled."""
        self._cloud.enabling = True
        missing = [each for each in resource.settings["enabled"] if each not in self._cloud.enabled]
        for start in range(0, len(missing), _MOST):
            operation = self._cloud.change(
                f"enable APIs of the project {self._cloud.project!r}",
                self._client.batch_enable_services,
                parent=f"projects/{self._cloud.project}",
                service_ids=missing[start:][:_MOST],
            )
            self._cloud.finish("enable APIs", operation)

    change = create

    @property
    def _client(self) -> service_usage_v1.ServiceUsageClient:
        return self._cloud.client("serviceusage", service_usage_v1.ServiceUsageClient)
