"""The docker builder against a program that behaves like docker; `tests/images` has the real one."""

from __future__ import annotations

import signal
import sys
import tarfile
import threading
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from building import IMAGE, Images, a_recipe, until
from locked_project import package

from kinetic_images.builders.builder import BuildReports
from kinetic_images.builders.docker import DockerBuilder
from kinetic_images.builders.docker.program import find_docker
from kinetic_images.builders.dockerfile.context import BuildContext, ContextFile
from kinetic_images.builders.dockerfile.secrets import BuildSecrets
from kinetic_images.errors import (
    BuildError,
    DependencyError,
    DockerNotFoundError,
    DockerUnavailableError,
    RegistryError,
)
from kinetic_payload.processes import living_processes
from kinetic_payload.threads import Stopped, stoppable

DIGEST = f"sha256:{'d' * 64}"
DOCKER = """#!PYTHON -IS
import os, pathlib, sys, time
here = pathlib.Path("FOLDER")
words = sys.argv[1:]
with (here / "calls").open("a") as calls:
    print(*words, sep=" ", file=calls)
if words == ["build", "--help"]:
    print("Usage: docker build" + "  --secret" * (os.environ.get("DOCKER_BUILDKIT") == "1"))
    print("  --load" * (here / "buildx").exists())
elif words == ["version"]:
    print("Client: Docker Engine")
    exec((here / "engine").read_text())
elif words[0] == "build":
    secrets = [word.partition("src=")[2] for word in words if word.startswith("--secret")]
    (here / "secrets").write_text("".join(pathlib.Path(path).read_text() for path in secrets))
    (here / "context.tar").write_bytes(sys.stdin.buffer.read())
    print("#1 starts", flush=True)
    exec((here / "behaviour").read_text())
elif words[0] == "push":
    if (here / "denied").exists():
        sys.exit("denied: requested access to the resource is denied")
    print("tag: digest: DIGEST size: 7")
    (here / "pushed").touch()
"""


@dataclass
class Program:
    """A program that stands in place of docker, and a builder that uses it."""

    folder: Path
    images: Images
    builder: DockerBuilder
    lines: list[str]

    @property
    def calls(self) -> list[str]:
        """The command lines, without the questions for its version and its options."""
        lines = (self.folder / "calls").read_text().splitlines()
        return [line for line in lines if "--help" not in line and line != "version"]

    def behave(self, text: str) -> None:
        """Set the Python program that runs when it builds."""
        (self.folder / "behaviour").write_text(text)

    def build(self) -> str:
        """Build a recipe."""
        return self.builder.build(a_recipe(labels={"a": "b c"}), IMAGE, self.reports)

    @property
    def reports(self) -> BuildReports:
        """Reports that `lines` keeps."""
        return BuildReports(line=self.lines.append)


class AfterPush(Images):
    """A registry that has the image once it was pushed."""

    folder: Path

    def digest(self, image: str) -> str | None:
        """Return the digest, if it was pushed."""
        return self.known.get(image) or (DIGEST if (self.folder / "pushed").exists() else None)


@pytest.fixture
def docker(tmp_path: Path, small_uv: None) -> Program:
    """A program in place of docker."""
    program = tmp_path / "bin" / "docker"
    program.parent.mkdir()
    words = {"PYTHON": sys.executable, "FOLDER": str(tmp_path), "DIGEST": DIGEST}
    text = DOCKER
    for word, value in words.items():
        text = text.replace(word, value)
    program.write_text(text)
    program.chmod(0o755)
    for name in ("behaviour", "engine"):
        (tmp_path / name).write_text("pass")
    images = AfterPush()
    images.folder = tmp_path
    environ = {"PATH": str(program.parent), "DOCKER_HOST": "unix:///x"}
    secrets = BuildSecrets(netrc="machine x login y password hunter22\n")
    builder = DockerBuilder(registries=images, secrets=lambda _: secrets, environ=environ)
    return Program(tmp_path, images, builder, [])


def test_a_build_whose_secrets_are_refused_is_refused_before_it_starts(docker: Program) -> None:
    asked: list[list[str]] = []

    def refuse(addresses: Iterable[str] | None) -> BuildSecrets:
        asked.append([*(addresses or ())])
        raise DependencyError("by plain http")

    with pytest.raises(DependencyError):
        replace(docker.builder, secrets=refuse).check(a_recipe(), IMAGE)

    assert asked == [[package().address]]


def test_an_image_is_built_pushed_and_forgotten(docker: Program) -> None:
    assert docker.build() == DIGEST

    build, push, *removed = docker.calls
    assert build.startswith(
        f"build --progress=plain --platform=linux/amd64 --tag={IMAGE} --label=a=b c"
    )
    assert build.endswith("--file=Dockerfile -")
    assert push == f"push {IMAGE}"
    assert removed == [f"image rm {IMAGE}", f"image rm {IMAGE.rpartition(':')[0]}@{DIGEST}"]
    with tarfile.open(docker.folder / "context.tar") as archive:
        assert "install/pylock.toml" in archive.getnames()


def test_options_of_docker_follow_from_its_builder_and_from_a_fresh_build(docker: Program) -> None:
    (docker.folder / "buildx").touch()
    context = BuildContext({"Dockerfile": ContextFile(b"FROM scratch\n")})
    docker.builder.build_context(context, IMAGE, docker.reports, fresh=True)

    assert " --load " in docker.calls[0]  # Into the engine, from a builder of buildx.
    assert " --pull --no-cache " in docker.calls[0]


def test_an_engine_that_cannot_be_used_is_refused_before_anything_is_uploaded(
    docker: Program,
) -> None:
    docker.builder.check(a_recipe(), IMAGE)
    (docker.folder / "engine").write_text("sys.exit('Cannot connect to the Docker daemon at x.')")

    for start in (lambda: docker.builder.check(a_recipe(), IMAGE), docker.build):
        with pytest.raises(DockerUnavailableError, match="Cannot connect to the Docker daemon"):
            start()
    assert not (docker.folder / "context.tar").exists()


def test_an_image_that_exists_is_not_built_and_not_pushed(docker: Program) -> None:
    docker.behave("(here / 'pushed').touch()")
    assert docker.build() == DIGEST  # It appeared during the build.
    assert not any(call.startswith("push") for call in docker.calls)

    docker.images.known[IMAGE] = "sha256:known"
    (docker.folder / "context.tar").unlink()
    assert docker.build() == "sha256:known"
    assert not (docker.folder / "context.tar").exists()


def test_secrets_reach_the_build_and_are_not_printed(docker: Program) -> None:
    docker.behave("print('#2 got hunter22 from https://u:p@x/')")

    docker.build()

    assert "hunter22" in (docker.folder / "secrets").read_text()
    assert "#2 got *** from https://x/" in docker.lines
    assert "hunter22" not in f"{docker.calls}{docker.lines}{docker.builder}"
    assert b"hunter22" not in (docker.folder / "context.tar").read_bytes()
    (path,) = [word for word in docker.calls[0].split() if word.startswith("--secret")]
    assert not Path(path.partition("src=")[2]).exists()


def test_a_failure_shows_the_end_of_the_log(docker: Program) -> None:
    docker.behave("print('#4 0.1 no such thing\\n#4 ERROR: exit code: 1'); sys.exit(1)")

    with pytest.raises(BuildError, match="no such thing"):
        docker.build()
    assert not any(call.startswith("push") for call in docker.calls)


def test_a_refused_push_is_an_error_and_leaves_no_tag(docker: Program) -> None:
    (docker.folder / "denied").touch()

    with pytest.raises(RegistryError, match=r"registry\.test.*\n.*denied: requested") as caught:
        docker.build()
    assert "docker login registry.test" in (caught.value.hint or "")
    assert docker.calls[-1] == f"image rm {IMAGE}"


@pytest.mark.parametrize("error", [Stopped, KeyboardInterrupt])
def test_a_build_that_is_stopped_or_interrupted_ends_docker(
    docker: Program, error: type[BaseException]
) -> None:
    docker.behave("(here / 'pid').write_text(str(os.getpid())); time.sleep(60)")
    pid, main = docker.folder / "pid", threading.get_ident()

    def is_building() -> bool:
        return pid.exists() and bool(pid.read_text()) and "#1 starts" in docker.lines

    def interrupt() -> None:
        until(is_building)
        signal.pthread_kill(main, signal.SIGINT)

    if error is KeyboardInterrupt:
        threading.Thread(target=interrupt, daemon=True).start()
    with pytest.raises(error), stoppable(lambda: error is Stopped and is_building()):
        docker.build()

    until(lambda: int(pid.read_text()) not in living_processes())


def test_the_first_docker_with_buildkit_is_used(docker: Program, tmp_path: Path) -> None:
    older = tmp_path / "older" / "docker"
    older.parent.mkdir()
    older.write_text(
        "#!/bin/sh\necho 'ERROR: BuildKit is enabled but buildx is missing'; exit 125\n"
    )
    older.chmod(0o755)
    both = {"PATH": f"{older.parent}:{docker.folder / 'bin'}"}

    assert find_docker(both).program == str(docker.folder / "bin" / "docker")
    with pytest.raises(DockerNotFoundError, match="BuildKit is missing"):
        find_docker({"PATH": str(older.parent)})
    with pytest.raises(DockerNotFoundError, match="no docker on PATH"):
        find_docker({"PATH": str(tmp_path)})
