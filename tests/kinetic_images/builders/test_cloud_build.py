"""Builds with Google's real client, over the wire; a Python function stands in place of docker."""

from __future__ import annotations

import io
import json
import os
import resource
import subprocess
import tarfile
import threading
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import grpc
import pytest
from building import IMAGE, Cloud, a_recipe, until
from locked_project import package

from kinetic_images.builders.cloud_build import CloudBuildSettings, RegistryLogin
from kinetic_images.builders.cloud_build.service import CloudBuildService
from kinetic_images.builders.cloud_build.state import BuildState, build_failure
from kinetic_images.builders.dockerfile.context import BuildContext, ContextFile
from kinetic_images.builders.dockerfile.secrets import BuildSecrets
from kinetic_images.errors import (
    BuildCancelledError,
    BuildError,
    BuildInputError,
    BuildQuotaError,
    BuildServiceDisabledError,
    BuildServiceLoginError,
    BuildServicePermissionError,
    BuildServiceUnavailableError,
    BuildTimeoutError,
    InvalidBuildError,
    RegistryUnavailableError,
)
from kinetic_images.targets import Target
from kinetic_payload.stores.folder.store import FolderStore
from kinetic_payload.threads import Stopped, stoppable
from kinetic_servers.cloud_build import Step

UNAVAILABLE = grpc.StatusCode.UNAVAILABLE
CACHE = "registry.test/kn/bundled:buildcache-amd64"


def test_an_image_is_built_and_its_digest_is_that_of_the_registry(cloud: Cloud) -> None:
    digest = cloud.build()

    assert digest == cloud.steps.pushed[IMAGE]
    assert set(cloud.steps.pushed) == {IMAGE, CACHE}
    assert cloud.only.status.name == "SUCCESS"
    requests = len(cloud.builds.requests)
    assert cloud.build() == digest  # The image that exists is adopted.
    assert len(cloud.builds.requests) == requests


def test_the_source_is_named_by_its_contents_and_uploaded_once(cloud: Cloud) -> None:
    cloud.builder.build(a_recipe(), IMAGE, cloud.reports)
    cloud.steps.pushed.clear()
    (stored,) = cloud.buckets.objects("builds", "team/builds/contexts/")
    uploads = cloud.buckets.requests.count(operation="objects.insert*", name=stored.name)
    cloud.builder.build(a_recipe(), IMAGE, cloud.reports)
    assert cloud.buckets.requests.count(operation="objects.insert*", name=stored.name) == uploads
    with tarfile.open(fileobj=io.BytesIO(stored.content.read())) as archive:
        assert {"Dockerfile", "install/pylock.toml", "install/uv"} <= set(archive.getnames())


def test_a_full_disk_is_named_and_not_taken_for_an_unreadable_file(
    cloud: Cloud, tmp_path: Path
) -> None:
    (tmp_path / "large").write_bytes(os.urandom(300_000))
    context = BuildContext({"Dockerfile": ContextFile(tmp_path / "large")})
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, hard))
    try:
        with pytest.raises(BuildError, match="build context cannot be written") as caught:
            cloud.builder.build_context(context, IMAGE, cloud.reports)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))

    assert not isinstance(caught.value, BuildInputError)
    assert "TMPDIR" in str(caught.value.hint)


def test_the_log_is_reported_while_the_build_runs(cloud: Cloud) -> None:
    goes_on = threading.Event()

    def waits(step: Step) -> int:
        step.write("#5 0.1 first line\n#5 0.2 not ")
        assert goes_on.wait(20)
        step.write("complete\n#5 9.9 \x1b[31mred\x1b[0m at https://me:secret@host/hunter22secret\n")
        return 0

    cloud.program.append(waits)
    cloud.builder = replace(cloud.builder, secrets=logins)
    working = threading.Thread(target=cloud.build, daemon=True)
    working.start()
    until(lambda: "#5 0.1 first line" in cloud.lines)
    assert not any("not complete" in line for line in cloud.lines)
    goes_on.set()
    working.join(20)

    assert "#5 0.2 not complete" in cloud.lines
    assert "#5 9.9 red at https://host/***" in cloud.lines


def test_the_error_of_a_failed_build_has_the_end_of_its_log_and_the_link(cloud: Cloud) -> None:
    def fails(step: Step) -> int:
        step.write("#4 [2/3] RUN install\n#4 0.1 error: no such file: x.whl\n#5 0.2 other\n")
        step.write("#4 ERROR: executor failed running [x]: exit code: 2\n------\nerror: failed\n")
        return 1

    cloud.program.append(fails)
    with pytest.raises(BuildError) as caught:
        cloud.build()

    assert "#4 0.1 error: no such file: x.whl\n#5 0.2 other\n#4 ERROR: exec" in caught.value.message
    assert "step 0 (gcr.io/cloud-builders/docker)" in caught.value.message
    assert f"See {cloud.only.log_url}" == caught.value.hint
    assert cloud.steps.pushed == {}


def test_steps_log_in_to_another_registry_and_push_with_a_secret(cloud: Cloud) -> None:
    version = "projects/test-project/secrets/hub/versions/latest"
    cloud.builds.secrets[version] = "pa55-of-the-hub"
    seen: list[tuple[tuple[str, ...], bool]] = []

    def docker(step: Step) -> int:
        seen.append((step.arguments, step.environment.get("KN_REGISTRY_PASSWORD") is not None))
        if step.arguments[:1] == ("push",):
            cloud.images.known[step.arguments[1]] = "sha256:pushed"
        return 0

    cloud.program.append(docker)
    login = RegistryLogin(host="registry.test", user="me", secret_version=version)

    assert cloud.build(registry_login=login) == "sha256:pushed"

    logged_in, build, *pushes = seen
    assert logged_in[0][-2:] == ("me", "registry.test")
    assert "--password-stdin" in logged_in[0][1]
    assert [has for _, has in seen] == [True, False, False, False]
    assert [arguments for arguments, _ in pushes] == [("push", CACHE), ("push", IMAGE)]
    assert build[0][0] == "build"
    assert "pa55" not in str(seen) + str(cloud.only)


@pytest.mark.parametrize("queued", [False, True])
def test_a_build_that_runs_or_waits_too_long_is_a_timeout(cloud: Cloud, queued: bool) -> None:
    if queued:
        cloud.builds.hold()
    else:
        cloud.program.append(lambda step: not step.stopped.wait(20))
    limit = {"queue_limit" if queued else "timeout": timedelta(seconds=1)}

    with pytest.raises(BuildTimeoutError) as caught:
        cloud.build(**limit)
    assert isinstance(caught.value, TimeoutError)
    assert ("waited in the queue" if queued else "within 0:00:01") in caught.value.message
    assert ("The build waits in the queue of Cloud Build." in cloud.lines) is queued


@pytest.mark.parametrize("queued", [False, True])
def test_a_stopped_wait_cancels_the_build_and_reports_it(cloud: Cloud, queued: bool) -> None:
    cloud.program.append(lambda step: not step.stopped.wait(20))
    if queued:
        cloud.builds.hold()
    stop = threading.Event()
    raised: list[BaseException] = []

    def work() -> None:
        try:
            with stoppable(stop.is_set):
                cloud.build()
        except BaseException as error:
            raised.append(error)

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    until(lambda: any("Building" in line for line in cloud.lines))
    stop.set()
    thread.join(20)

    assert isinstance(raised[0], Stopped)
    assert cloud.only.status.name == "CANCELLED"
    assert cloud.lines[-1] == "The build was cancelled."
    assert cloud.steps.pushed == {}


def test_an_interrupt_while_the_build_is_started_cancels_it_too(cloud: Cloud) -> None:
    # Its response is lost, and the wait for the list of builds is interrupted.
    cloud.program.append(lambda step: not step.stopped.wait(20))
    cloud.builds.fail("CreateBuild", UNAVAILABLE, after=True)

    with (
        pytest.raises(Stopped),
        stoppable(lambda: any("did not respond" in line for line in cloud.lines)),
    ):
        cloud.build()

    assert cloud.only.status.name == "CANCELLED"


def test_a_build_that_cannot_be_cancelled_is_reported_as_continuing(cloud: Cloud) -> None:
    cloud.builds.fail("CancelBuild", UNAVAILABLE)
    goes_on = threading.Event()
    cloud.program.append(lambda step: 0 if goes_on.wait(20) else 1)

    with pytest.raises(Stopped), stoppable(lambda: any("Building" in x for x in cloud.lines)):
        cloud.build()
    goes_on.set()

    assert "It continues, and leaves a correct image" in cloud.lines[-1]
    until(lambda: IMAGE in cloud.steps.pushed)


def test_a_build_that_is_cancelled_elsewhere_is_not_a_failure(cloud: Cloud) -> None:
    def cancels(step: Step) -> int:
        another = CloudBuildService(cloud.builder.settings)
        threading.Thread(target=another.cancel, args=(cloud.only.id,), daemon=True).start()
        return not step.stopped.wait(20)

    cloud.program.append(cancels)
    with pytest.raises(BuildCancelledError):
        cloud.build()


@pytest.mark.parametrize("lost", [0, 3], ids=["first", "last"])
def test_a_lost_response_to_the_start_never_makes_two_builds(cloud: Cloud, lost: int) -> None:
    """*lost* requests start nothing; the next one starts a build, and its response is lost, too."""
    if lost:
        cloud.builds.fail("CreateBuild", UNAVAILABLE, times=lost)
    cloud.builds.fail("CreateBuild", UNAVAILABLE, after=True)
    if lost < 3:
        cloud.builds.fail("ListBuilds", UNAVAILABLE)
        cloud.builds.fail("ListBuilds", EXHAUSTED, "Quota exceeded")

    assert cloud.build() == cloud.steps.pushed[IMAGE]

    assert len(cloud.builds.builds) == 1
    assert cloud.builds.requests.count("CreateBuild") == lost + 1


def test_a_lost_connection_while_waiting_is_retried(cloud: Cloud) -> None:
    cloud.builds.fail("GetBuild", UNAVAILABLE, times=2)
    cloud.builds.fail("GetBuild", grpc.StatusCode.INTERNAL)
    cloud.builds.fail(
        "GetBuild", grpc.StatusCode.RESOURCE_EXHAUSTED, "Quota exceeded: get requests"
    )

    assert cloud.build() == cloud.steps.pushed[IMAGE]


def test_a_log_that_cannot_be_read_does_not_fail_the_build(cloud: Cloud) -> None:
    cloud.buckets.faults.add(operation="objects.get*", name="*log-*", status=403)

    assert cloud.build() == cloud.steps.pushed[IMAGE]
    assert any("log of the build could not be read" in line for line in cloud.lines)


DENIED, EXHAUSTED = grpc.StatusCode.PERMISSION_DENIED, grpc.StatusCode.RESOURCE_EXHAUSTED
LOGIN = "gcloud auth application-default login"


@pytest.mark.parametrize(
    ("code", "message", "reason", "error", "hint"),
    [
        (DENIED, "API has not been used in project 1 before or it is disabled.", "SERVICE_DISABLED", BuildServiceDisabledError, "gcloud services enable cloudbuild.googleapis.com --project=test-project"),
        (DENIED, "The caller does not have permission", "", BuildServicePermissionError, "roles/cloudbuild.builds.editor"),
        (DENIED, "caller lacks permission iam.serviceAccounts.actAs on builder@x", "", BuildServicePermissionError, "roles/iam.serviceAccountUser"),
        (EXHAUSTED, "Quota exceeded for quota metric 'Build requests'", "", BuildQuotaError, "iam-admin/quotas?project=test-project"),
        (grpc.StatusCode.FAILED_PRECONDITION, "due to quota restrictions, Cloud Build cannot run builds in this region", "", BuildQuotaError, "another region"),
        (grpc.StatusCode.UNAUTHENTICATED, "Request had invalid authentication credentials.", "", BuildServiceLoginError, LOGIN),
        (UNAVAILABLE, "Getting metadata from plugin failed with error: ('invalid_grant: expired', {})", "", BuildServiceLoginError, LOGIN),
    ],
)  # fmt: skip
def test_the_error_of_a_refused_build_has_the_next_step(
    cloud: Cloud, code: Any, message: str, reason: str, error: type[Exception], hint: str
) -> None:
    cloud.builds.fail("CreateBuild", code, message, reason=reason)

    with pytest.raises(error) as caught:
        cloud.build()

    assert hint in str(caught.value)
    assert len(cloud.builds.builds) == 0


@pytest.mark.parametrize(
    ("settings", "error", "hint"),
    [
        ({"region": "nowhere-east9"}, InvalidBuildError, "build/docs/locations"),
        ({"service_account": "gone@x.test"}, InvalidBuildError, "gone@x.test, exists"),
        ({"project": "other"}, BuildServicePermissionError, "project 'other'"),
        ({"endpoint": "http://127.0.0.1:9"}, BuildServiceUnavailableError, "network"),
    ],
)
def test_a_wrong_setting_is_refused_by_name(
    cloud: Cloud, settings: dict[str, Any], error: type[Exception], hint: str
) -> None:
    with pytest.raises(error) as caught:
        cloud.build(**settings)

    assert hint in str(caught.value)


def test_missing_google_credentials_are_a_login_error(
    cloud: Cloud, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(tmp_path / "missing.json"))

    with pytest.raises(BuildServiceLoginError, match=r"missing\.json"):
        cloud.build(endpoint=None)


@pytest.mark.parametrize(
    ("seen", "log", "kind", "role"),
    [
        ({"failure": "PUSH_NOT_AUTHORIZED"}, "", BuildServicePermissionError, "roles/artifactregistry.writer"),
        ({"failure": "FETCH_SOURCE_FAILED"}, "", BuildServicePermissionError, "roles/storage.objectViewer"),
        ({"failure": "LOGGING_FAILURE"}, "", BuildServicePermissionError, "roles/storage.objectUser"),
        ({"detail": "failed to access secret version"}, "", BuildServicePermissionError, "roles/secretmanager.secretAccessor"),
        ({}, "Failed to fetch: `https://us-python.pkg.dev/p/r/x.whl` 403 Forbidden", BuildError, "roles/artifactregistry.reader"),
    ],
)  # fmt: skip
def test_a_role_that_the_account_of_builds_lacks_is_named(
    seen: dict[str, str], log: str, kind: type[Exception], role: str
) -> None:
    state = BuildState(build_id="1", status="FAILURE", **seen)  # type: ignore[arg-type]
    settings = CloudBuildSettings(project="p", service_account="builder@x.test")

    error = build_failure(state, IMAGE, log, settings)

    assert type(error) is kind
    assert f"builder@x.test has {role}" in str(error) or f"builder@x.test needs {role}" in str(
        error
    )


VERSION = "projects/test-project/secrets/netrc/versions/3"
STORED = "machine files.test login me password hunter22secret\n"
PROGRAMS = {
    "gcloud": '[ "$*" = "auth print-access-token" ] && echo t0ken-of-the-account',
    "docker": 'for a in "$@"; do case "$a" in --secret=id=netrc,src=*) cat "${a#*src=}" >> "${0%/*}/netrc";; esac; done',
}


@dataclass
class Shell:
    """Runs the shell commands of steps with programs in place of gcloud and docker, which record the netrc."""

    folder: Path
    steps: list[Step] = field(default_factory=list)

    def __call__(self, step: Step) -> int:
        """Run a step."""
        self.steps.append(step)
        for name, text in PROGRAMS.items():
            program = self.folder / name
            program.write_text(f"#!/bin/sh\n{text}\n")
            program.chmod(0o755)
        command = [step.entrypoint, *step.arguments]
        for path, folder in step.volumes.items():
            command = [word.replace(path, str(folder)) for word in command]
        environ = {**step.environment, "PATH": f"{self.folder}:/usr/bin:/bin"}
        done = subprocess.run(command, env=environ, capture_output=True, check=False)
        step.write(done.stdout.decode() + done.stderr.decode())
        return done.returncode

    @property
    def netrc(self) -> list[str]:
        """The lines of the netrc that docker was given."""
        return (self.folder / "netrc").read_text().split("\n")


def logins(addresses: Iterable[str] | None) -> BuildSecrets:
    """Return the credentials of a machine that has some for `files.test`."""
    known = addresses is None or any("//files.test/" in each for each in addresses)
    return BuildSecrets(netrc=STORED if known else "")


GOOGLE = "https://us-python.pkg.dev/p/r/six-1.17.0-py3-none-any.whl"
OTHER_GOOGLE = GOOGLE.replace("us-", "europe-west4-")


@pytest.mark.parametrize(
    ("addresses", "stored", "expected"),
    [
        ([GOOGLE], None, ["machine us-python.pkg.dev login oauth2accesstoken password t0ken"]),
        (
            [GOOGLE, "https://files.test/a.whl", OTHER_GOOGLE],
            STORED,
            [
                STORED.strip(),
                "machine europe-west4-python.pkg.dev login oauth2accesstoken password t0ken",
                "machine us-python.pkg.dev login oauth2accesstoken password t0ken",
            ],
        ),
        (["https://files.test/a.whl"], STORED, [STORED.strip()]),
        ([GOOGLE], "machine us-python.pkg.dev\nlogin _json_key password key", ["machine us-python.pkg.dev", "login _json_key password key"]),
    ],
    ids=["Artifact Registry", "both", "stored", "a key of the user"],
)  # fmt: skip
def test_a_build_logs_in_to_indexes_and_its_credentials_appear_nowhere_else(
    cloud: Cloud, tmp_path: Path, addresses: list[str], stored: str | None, expected: list[str]
) -> None:
    packages = [package(f"p{number}", address=each) for number, each in enumerate(addresses)]
    shell = Shell(tmp_path)
    cloud.program.append(shell)
    cloud.builder = replace(cloud.builder, secrets=logins)
    if stored is not None:
        cloud.builds.secrets[VERSION] = stored
        settings = replace(cloud.builder.settings, secret_versions={"netrc": VERSION})
        cloud.builder = replace(cloud.builder, settings=settings)

    cloud.builder.build(a_recipe(*packages), IMAGE, cloud.reports)

    found = [line.replace("t0ken-of-the-account", "t0ken") for line in shell.netrc if line]
    assert found == expected
    assert not any("--network" in word for step in shell.steps for word in step.arguments)
    bucket = [stored.content.read() for stored in cloud.buckets.objects("builds", "")]
    everywhere = f"{cloud.only}{cloud.builder}{cloud.lines}{bucket}"
    assert "t0ken" not in everywhere
    assert "hunter22secret" not in everywhere
    workspace = shell.steps[-1].folder
    assert not any(folder.is_relative_to(workspace) for folder in shell.steps[0].volumes.values())


SDIST = package(file="six-1.17.0.tar.gz", address="https://open.test/six-1.17.0.tar.gz")


def test_a_source_archive_is_built_with_the_indexes_of_the_project(
    cloud: Cloud, tmp_path: Path
) -> None:
    indexes = {"UV_DEFAULT_INDEX": "https://us-python.pkg.dev/p/r/simple/"}
    builder = replace(cloud.builder, environment={**indexes, "HTTPS_PROXY": "http://proxy.test"})
    builder.build(a_recipe(), IMAGE, cloud.reports)
    assert settings_of(cloud) == {"HTTPS_PROXY": "http://proxy.test"}
    cloud.steps.pushed.clear()
    shell = Shell(tmp_path)
    cloud.program.append(shell)

    builder.build(a_recipe(SDIST), IMAGE, cloud.reports)

    assert settings_of(cloud) == {**indexes, "HTTPS_PROXY": "http://proxy.test"}
    assert [line.split()[1] for line in shell.netrc if line] == ["us-python.pkg.dev"]
    private = {"UV_DEFAULT_INDEX": "https://files.test/simple"}
    with pytest.raises(BuildInputError, match=r"from files\.test with a login"):
        replace(builder, environment=private, secrets=logins).check(a_recipe(SDIST), IMAGE)


def settings_of(cloud: Cloud) -> dict[str, str]:
    """Return the variables for uv in the latest context."""
    latest = max(
        cloud.buckets.objects("builds", "team/builds/contexts/"), key=lambda each: each.generation
    )
    with tarfile.open(fileobj=io.BytesIO(latest.content.read())) as archive:
        file = archive.extractfile("install/settings.json")
        assert file is not None
        return dict(json.load(file)["environment"])


def test_a_token_is_obtained_only_for_an_encrypted_address_of_google(cloud: Cloud) -> None:
    addresses = ("https://files.test/a.whl", GOOGLE.replace("https", "http"))
    packages = [package(f"p{number}", address=each) for number, each in enumerate(addresses)]
    cloud.builder.build(a_recipe(*packages), IMAGE, cloud.reports)

    assert [step.name for step in cloud.only.steps] == ["gcr.io/cloud-builders/docker"]
    assert not cloud.only.available_secrets.secret_manager


def test_a_registry_that_fails_after_the_build_does_not_lose_its_digest(cloud: Cloud) -> None:
    class Failing:
        def __init__(self) -> None:
            self.looks = 0

        def digest(self, image: str) -> str | None:
            self.looks += 1
            if self.looks == 1:
                return None
            raise RegistryUnavailableError("The registry is not responding.")

    cloud.builder = replace(cloud.builder, registries=Failing())
    assert cloud.build() == cloud.steps.pushed[IMAGE]
    assert any("could not be looked up" in line for line in cloud.lines)


def test_arm_images_and_other_stores_are_refused_at_once(cloud: Cloud, tmp_path: Any) -> None:
    arm = a_recipe(target=Target(python="3.11", machine="aarch64"))
    local = replace(cloud.builder, store=FolderStore(tmp_path))

    assert "arm64" in str(cloud.builder.obstacle(arm))
    with pytest.raises(BuildInputError, match="arm64"):
        cloud.builder.build(arm, IMAGE, cloud.reports)
    for refuse in (local.check, lambda *each: local.build(*each, cloud.reports)):
        with pytest.raises(BuildInputError, match="bucket"):
            refuse(a_recipe(), IMAGE)
    assert cloud.builder.obstacle(a_recipe(package())) is None
