"""The project itself: what the user may do in it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from google.cloud import resourcemanager_v3

from kinetic.provisioning.google.cloud import Cloud

PROJECT_SERVICE: Final = "cloudresourcemanager.googleapis.com"
_MOST: Final = 100
"""https://cloud.google.com/resource-manager/reference/rest/v3/projects/testIamPermissions"""


def missing_in_project(cloud: Cloud, needed: Sequence[str]) -> list[str]:
    """Return which of the *needed* permissions the user does not have in the project."""
    granted: set[str] = set()
    for start in range(0, len(needed), _MOST):
        found = cloud.ask(
            "see which permissions you have",
            projects_client(cloud).test_iam_permissions,
            resource=f"projects/{cloud.project}",
            permissions=needed[start:][:_MOST],
        )
        granted.update(found.permissions if found else ())
    return [each for each in needed if each not in granted]


def visible_projects(cloud: Cloud) -> list[str]:
    """Return the ids of the projects that the user can see, in order."""
    find = projects_client(cloud).search_projects
    found = cloud.ask(
        "list your projects",
        lambda: list(find(query="state:ACTIVE", retry=None, timeout=cloud.timeout)),
    )
    return sorted(each.project_id for each in found or ())


def projects_client(cloud: Cloud) -> resourcemanager_v3.ProjectsClient:
    """Return Google's client for projects."""
    return cloud.client("cloudresourcemanager", resourcemanager_v3.ProjectsClient)
