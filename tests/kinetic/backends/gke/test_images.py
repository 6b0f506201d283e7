"""The repository of a cluster's images, and settings that are refused without a request."""

from __future__ import annotations

from pathlib import Path

import pytest

from kinetic.backends.gke.images.builders import ClusterBuilders
from kinetic.backends.gke.images.job_image import ClusterImages
from kinetic.errors import ConfigurationError
from kinetic.settings.settings import resolve
from kinetic.submit.options import check_options
from kinetic.submit.request import JobRequest, request_of
from kinetic_payload.records.signing import UNSIGNED


def train() -> None: ...


def a_request(folder: Path, *, image: str | None = None, **environ: str) -> JobRequest:
    options = check_options(accelerator="cpu", container_image=image, backend="gke")
    variables = {"KINETIC_KUBE_CONTEXT": "mine", **environ}
    settings = resolve(options.overrides, environ=variables, user_home=folder)
    return request_of(options, train, settings, environ={}, cwd=folder)


def images(
    folder: Path, *, context: str | None = None, location: str | None = None
) -> ClusterImages:
    builders = ClusterBuilders(
        home=folder, signing=UNSIGNED, environment={}, context=context, location=location
    )
    return ClusterImages(builders)


US, EUROPE = "gke_proj_us-central1-a_one", "gke_proj_europe-west4_one"
REPO = "KINETIC_IMAGE_REPO"
BASES = "KINETIC_BASE_IMAGE_REPO"
BUILDER = "KINETIC_IMAGE_BUILDER"


@pytest.mark.parametrize(
    ("context", "location", "environ", "expected"),
    [
        (US, None, {}, "us-docker.pkg.dev/proj/kn-one/bundled"),
        (EUROPE, None, {"KINETIC_PROJECT": "other", "KINETIC_CLUSTER": "other"},
            "europe-docker.pkg.dev/proj/kn-one/bundled"),
        (None, "australia-southeast1", {"KINETIC_PROJECT": "proj", "KINETIC_CLUSTER": "two"},
            "australia-southeast1-docker.pkg.dev/proj/kn-two/bundled"),
        ("mine", None, {"KINETIC_PROJECT": "proj", "KINETIC_ZONE": "asia-east1-b"},
            "asia-docker.pkg.dev/proj/kn-kinetic-cluster/bundled"),
        (US, None, {REPO: "127.0.0.1:5000/kn/"}, "127.0.0.1:5000/kn/bundled"),
    ],
)  # fmt: skip
def test_bundled_images_are_in_the_repository_of_the_cluster_or_of_the_setting(
    tmp_path: Path,
    context: str | None,
    location: str | None,
    environ: dict[str, str],
    expected: str,
) -> None:
    request = a_request(tmp_path, **environ)
    found = images(tmp_path, context=context, location=location)
    found.check(request)
    assert found.expected(request) == expected


@pytest.mark.parametrize(
    ("image", "environ", "message"),
    [
        ("prebuilt", {}, "needs the repository of your base images"),
        ("prebuilt", {BASES: "Not A Repository"}, BASES),
        ("prebuilt", {BASES: "h.example/kn:v1"}, f"{BASES}: 'h.example/kn:v1' is not a repository"),
        ("prebuilt", {BASES: "h.example/kn", "KINETIC_NODE_CACHE": "var/cache"},
            "KINETIC_NODE_CACHE names the folder 'var/cache'"),
        (None, {REPO: "h.example/kn", "KINETIC_BUILD_SECRET": "projects/p/secrets/s"},
            "KINETIC_BUILD_SECRET: This is not the name of a secret"),
        (None, {REPO: "https://h.example/kn"},
            f"{REPO}: 'https://h.example/kn' is no name of an image: it begins with a scheme"),
        (None, {REPO: "h.example/kn:v1"}, f"{REPO}: 'h.example/kn:v1' is not a repository"),
        (None, {REPO: ""}, "repository for images is not known"),
        (None, {REPO: "h.example/kn", "KINETIC_BASE_IMAGE": "Not An Image"}, "KINETIC_BASE_IMAGE"),
        (None, {REPO: "h.example/kn", BUILDER: "layer"}, f"{BUILDER} names the image builder 'layer'"),
        (None, {REPO: "h.example/kn", BUILDER: "cloud_build"}, "the project or the region"),
    ],
)  # fmt: skip
def test_a_setting_that_cannot_be_used_is_refused_with_a_hint(
    tmp_path: Path, image: str | None, environ: dict[str, str], message: str
) -> None:
    with pytest.raises(ConfigurationError, match=message) as caught:
        images(tmp_path).check(a_request(tmp_path, image=image, **environ))
    assert caught.value.hint
