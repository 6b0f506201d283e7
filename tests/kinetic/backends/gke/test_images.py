"""Where the images of a cluster's jobs are, and what is refused before anything is asked over the network."""

from __future__ import annotations

from pathlib import Path

import pytest

from kinetic.backends.gke.images.builders import ClusterBuilders
from kinetic.backends.gke.images.job_image import ClusterImages
from kinetic.errors import ConfigurationError, InvalidRequestError
from kinetic.settings.settings import resolve
from kinetic.submit.options import check_options
from kinetic.submit.request import JobRequest, request_of
from kinetic_payload.records.signing import UNSIGNED


def train() -> None: ...


def a_request(folder: Path, *, image: str | None = None, **environ: str) -> JobRequest:
    options = check_options(accelerator="cpu", container_image=image, backend="gke")
    variables = {"KINETIC_KUBE_CONTEXT": "mine", **environ}
    settings = resolve(options.settings, environ=variables, user_home=folder)
    return request_of(options, train, settings, environ={}, cwd=folder)


def images(
    folder: Path, *, context: str | None = None, location: str | None = None
) -> ClusterImages:
    builders = ClusterBuilders(
        home=folder, signing=UNSIGNED, environment={}, context=context, location=location
    )
    return ClusterImages(builders)


@pytest.mark.parametrize(
    ("context", "location", "environ", "expected"),
    [
        (
            "gke_proj_us-central1-a_one",
            None,
            {},
            "us-docker.pkg.dev/proj/kn-one/bundled",
        ),
        (
            "gke_proj_europe-west4_one",
            None,
            {"KINETIC_PROJECT": "other", "KINETIC_CLUSTER": "other"},
            "europe-docker.pkg.dev/proj/kn-one/bundled",
        ),
        (
            None,
            "australia-southeast1",
            {"KINETIC_PROJECT": "proj", "KINETIC_CLUSTER": "two"},
            "australia-southeast1-docker.pkg.dev/proj/kn-two/bundled",
        ),
        (
            "mine",
            None,
            {"KINETIC_PROJECT": "proj", "KINETIC_ZONE": "asia-east1-b"},
            "asia-docker.pkg.dev/proj/kn-kinetic-cluster/bundled",
        ),
        (
            "gke_proj_us-central1-a_one",
            None,
            {"KINETIC_IMAGE_REPO": "127.0.0.1:5000/kn/"},
            "127.0.0.1:5000/kn/bundled",
        ),
    ],
)
def test_bundled_images_are_in_the_repository_of_the_cluster_or_in_the_named_one(
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
    ("image", "environ", "error", "message"),
    [
        (None, {}, ConfigurationError, "repository for images is not known"),
        (
            "bundled",
            {"KINETIC_IMAGE_BUILDER": "layer", "KINETIC_IMAGE_REPO": "h.example/kn"},
            ConfigurationError,
            "KINETIC_IMAGE_BUILDER names the image builder 'layer'",
        ),
        (
            None,
            {"KINETIC_IMAGE_BUILDER": "cloud_build", "KINETIC_IMAGE_REPO": "h.example/kn"},
            ConfigurationError,
            "the project and the region of the cluster are not known",
        ),
        ("prebuilt", {}, ConfigurationError, "needs the repository of your base images"),
        (
            "prebuilt",
            {"KINETIC_BASE_IMAGE_REPO": "Not A Repository"},
            ConfigurationError,
            "KINETIC_BASE_IMAGE_REPO",
        ),
        (
            "prebuilt",
            {"KINETIC_BASE_IMAGE_REPO": "h.example/kn", "KINETIC_NODE_CACHE": "var/cache"},
            ConfigurationError,
            "KINETIC_NODE_CACHE names the folder 'var/cache'",
        ),
        (
            None,
            {"KINETIC_IMAGE_REPO": "h.example/kn", "KINETIC_BUILD_SECRET": "projects/p/secrets/s"},
            ConfigurationError,
            "KINETIC_BUILD_SECRET: This is not the name of a secret",
        ),
        (
            None,
            {"KINETIC_IMAGE_REPO": "https://h.example/kn"},
            ConfigurationError,
            "KINETIC_IMAGE_REPO: 'https://h.example/kn' is no name of an image: it begins with a scheme",
        ),
        (
            None,
            {"KINETIC_IMAGE_REPO": "h.example/kn:v1"},
            ConfigurationError,
            "KINETIC_IMAGE_REPO: 'h.example/kn:v1' is not a repository",
        ),
        (
            "prebuilt",
            {"KINETIC_BASE_IMAGE_REPO": "h.example/kn:v1"},
            ConfigurationError,
            "KINETIC_BASE_IMAGE_REPO: 'h.example/kn:v1' is not a repository",
        ),
        (
            None,
            {"KINETIC_IMAGE_REPO": "h.example/kn", "KINETIC_BASE_IMAGE": "Not An Image"},
            ConfigurationError,
            "KINETIC_BASE_IMAGE",
        ),
    ],
)
def test_what_cannot_be_provided_is_refused_with_a_hint(
    tmp_path: Path,
    image: str | None,
    environ: dict[str, str],
    error: type[InvalidRequestError],
    message: str,
) -> None:
    with pytest.raises(error, match=message) as caught:
        images(tmp_path).check(a_request(tmp_path, image=image, **environ))
    assert caught.value.hint
