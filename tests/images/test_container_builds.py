"""Images that docker builds, here and by way of Cloud Build: they run anywhere, and nothing leaks into them."""

from __future__ import annotations

import contextlib
import gzip
import json
import os
import subprocess
import threading
from collections.abc import Iterator
from dataclasses import replace
from functools import cache, partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import urllib3
from wheel_maker import locked, make_wheel

from kinetic.waiting import sleep
from kinetic_images.base_images import PublishedImage, publish_dockerfile
from kinetic_images.builders.builder import BuildReports
from kinetic_images.builders.cloud_build import CloudBuildBuilder, CloudBuildSettings
from kinetic_images.builders.docker import DockerBuilder
from kinetic_images.builders.dockerfile.context import BuildContext, ContextFile
from kinetic_images.builders.dockerfile.secrets import BuildSecrets
from kinetic_images.builders.layers.builder import LayersBuilder
from kinetic_images.downloads import Downloader
from kinetic_images.errors import BuildError
from kinetic_images.lock.packages import LockedPackage
from kinetic_images.lock.pylock import read_pylock
from kinetic_images.recipe import RUNNER_PATH, Recipe
from kinetic_images.registry.registry import Registry
from kinetic_images.targets import Target
from kinetic_images.uv import find_uv
from kinetic_images.wheel_files import WheelFiles
from kinetic_payload.stores.gcs import GcsStore
from kinetic_payload.threads import Stopped, stoppable
from kinetic_servers.cloud_build import CloudBuildServer, DockerSteps
from kinetic_servers.gcs import GcsServer

REGISTRY = Registry(environ={})
ENVIRON = os.environ  # noqa: TID251 - which certificates and which test cloud this machine has
CERTIFICATES = Path(ENVIRON.get("SSL_CERT_FILE", "/etc/ssl/certs/ca-certificates.crt"))
PASSWORD = "pa55-of-an-index"
NETRC = f"machine index.test login me password {PASSWORD}\n"
SETUP = "from setuptools import setup\nsetup(name='{0}', version='1.0', py_modules=['{0}'])\n"
LOOK = f"""
import importlib.metadata, json, os, sys
import from_repository, local_wheel, docopt, six
import subprocess
spec = sys.modules["six"].__spec__
print(json.dumps({{
    "names": sorted(d.name for d in importlib.metadata.distributions() if "/opt/kn/" in str(d._path)),
    "six": [six.__file__, os.path.exists(spec.cached)],
    "isolated": sys.flags.isolated, "uid": os.getuid(),
    "tool": subprocess.run(["tool-of-wheel"], capture_output=True, text=True).stdout,
    "runner": os.stat({RUNNER_PATH!r}).st_mode & 0o777,
    "left": [p for p in ("/run/kinetic", os.path.expanduser("~root/.netrc"), "/opt/kn/.lock") if os.access(p, os.F_OK)],
    "modes": sorted({{oct(os.lstat(os.path.join(f, n)).st_mode & 0o777)
                     for f, d, names in os.walk("/opt/kn") for n in (*d, *names)}}),
}}))
"""


@pytest.fixture(scope="session")
def git_address(engine: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A server with a git repository, which containers reach."""
    root = tmp_path_factory.mktemp("git")
    work = root / "work"
    (work / "inner").mkdir(parents=True)
    (work / "inner" / "setup.py").write_text(SETUP.format("from_repository"))
    (work / "inner" / "from_repository.py").write_text("here = 1\n")
    author = ("-c", "user.name=t", "-c", "user.email=t@t")
    for words in (("init", "-q"), ("add", "."), (*author, "commit", "-qm", "x")):
        subprocess.run(["git", *words], cwd=work, check=True)
    subprocess.run(["git", "clone", "-q", "--bare", work, root / "r.git"], check=True)
    subprocess.run(["git", "update-server-info"], cwd=root / "r.git", check=True)
    address = engine.address_of_host
    handler = partial(SimpleHTTPRequestHandler, directory=str(root))
    server = ThreadingHTTPServer((address, 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    commit = subprocess.run(
        ["git", "rev-parse", "HEAD"], cwd=work, capture_output=True, text=True, check=True
    ).stdout.strip()
    yield f"git+http://{address}:{server.server_port}/r.git@{commit}"
    server.shutdown()


@pytest.fixture(scope="session")
def base(
    engine: Any, docker_registry: str, debian: str, tmp_path_factory: pytest.TempPathFactory
) -> str:
    """The base image with Debian's package index, a user, and the mark of an externally managed Python."""
    folder = tmp_path_factory.mktemp("base")
    (folder / "Dockerfile").write_text(
        f"FROM {debian}\n"
        "RUN echo deb http://deb.debian.org/debian bookworm main > /etc/apt/sources.list "
        "&& touch /usr/lib/python3.11/EXTERNALLY-MANAGED && useradd someone "
        "&& echo 'version = 0' > /usr/local/lib/python3.11/dist-packages/six.py\n"
        'USER someone\nWORKDIR /tmp\nENTRYPOINT ["/usr/bin/env"]\n'
    )
    image = f"{docker_registry}/base/own"
    engine.run("build", "-t", f"{image}:1", str(folder))
    engine.run("push", f"{image}:1")
    return f"{image}@{digest_of(image, '1')}"


def digest_of(repository: str, tag: str) -> str | None:
    """Return the digest of a tag."""
    return REGISTRY.repository(repository).digest(tag)


@pytest.fixture
def builder(engine: Any) -> DockerBuilder:
    """A builder with credentials for an index that is not needed."""
    secrets = BuildSecrets(netrc=NETRC, ca=CERTIFICATES)
    return DockerBuilder(registries=REGISTRY, secrets=lambda _: secrets, environ=engine.environ)


@cache
def from_index(name: str, version: str, kind: str) -> LockedPackage:
    """Return a package as the index has it now; *kind* is `bdist_wheel` or `sdist`."""
    choice = "--only-binary" if kind == "bdist_wheel" else "--no-binary"
    command = ["pip", "compile", "-q", "--no-config", "--format", "pylock.toml", choice, ":all:"]
    done = subprocess.run(
        [find_uv().program, *command, "--python-version", "3.11", "-"],
        input=f"{name}=={version}",
        check=True,
        capture_output=True,
        text=True,
    )
    (found,) = read_pylock(done.stdout, "pylock.toml", Target(python="3.11"))
    return found


def local_wheel(folder: Path, text: str = "runs") -> LockedPackage:
    """Return a wheel in *folder*, with a command that prints *text*; the engine has no result for it yet."""
    files = {"local_wheel.py": f"def main():\n    print({text!r})\n# {folder}\n"}
    points = "[console_scripts]\ntool-of-wheel = local_wheel:main\n"
    path = make_wheel(folder, files, name="local_wheel", version="2.0", entry_points=points)
    return replace(locked(path), name="local-wheel")


@pytest.fixture
def recipe(base: str, git_address: str, tmp_path: Path) -> Recipe:
    """A recipe with a package of each kind."""
    address, _, commit = git_address.rpartition("@")
    repository = LockedPackage(
        name="from-repository",
        version="",
        file="",
        sha256=commit,
        address=address,
        subdirectory="inner",
    )
    return Recipe(
        target=Target(python="3.11"),
        base=base,
        packages=(
            from_index("six", "1.17.0", "bdist_wheel"),
            from_index("docopt", "0.6.2", "sdist"),
            local_wheel(tmp_path),
            repository,
        ),
        files={RUNNER_PATH: b"print('runner')\n"},
        labels={"dev.kinetic.note": "a $label, with words"},
    )


@contextlib.contextmanager
def cloud(engine: Any, ca: str) -> Iterator[CloudBuildBuilder]:
    """A Cloud Build that runs its steps with *engine*."""
    version = "projects/test-project/secrets/{}/versions/1"
    with (
        pytest.MonkeyPatch.context() as patch,
        GcsServer() as buckets,
        CloudBuildServer(
            buckets.endpoint, DockerSteps("/usr/bin/docker", engine.environ)
        ) as builds,
    ):
        for name, value in buckets.environment.items():
            patch.setenv(name, value)
        buckets.create_bucket("builds")
        builds.secrets |= {version.format("netrc"): NETRC, version.format("ca"): ca}
        settings = CloudBuildSettings(
            project="test-project",
            endpoint=builds.endpoint,
            secret_versions={name: version.format(name) for name in ("netrc", "ca")},
        )
        secrets = BuildSecrets(netrc=NETRC)
        builder = CloudBuildBuilder(
            settings=settings,
            store=GcsStore("builds"),
            registries=REGISTRY,
            secrets=lambda _: secrets,
        )
        yield builder


@cache
def used_authorities() -> str:
    """Return the authorities of the machine that a variable of the environment has room for.

    The index needs one of them.
    """
    address = from_index("six", "1.17.0", "bdist_wheel").address
    blocks = CERTIFICATES.read_text().split("-----END CERTIFICATE-----")[:-1]
    certificates = [f"{block.strip()}\n-----END CERTIFICATE-----\n" for block in blocks]
    for half in (certificates[-20:], certificates[: len(certificates) // 3]):
        http = urllib3.PoolManager(ca_cert_data="".join(half), retries=False)
        with contextlib.suppress(urllib3.exceptions.HTTPError):
            http.request("HEAD", address)
            return "".join(half)
    pytest.skip("the authority of the index was not found in the machine's certificates")


def check_image(engine: Any, image: str, recipe: Recipe) -> None:
    """Check what runs in an image, and what is in its layers."""
    options = ("--read-only", "--user", "12345:12345", "--network", "none", "--entrypoint", "")
    ran = engine.run("run", "--rm", *options, image, "python3", "-I", "-c", LOOK)
    assert json.loads(ran.stdout) == {
        "names": ["docopt", "from_repository", "local_wheel", "six"],
        "six": ["/opt/kn/site/six.py", True],
        "isolated": 1,
        "uid": 12345,
        "tool": "runs\n",
        "runner": 0o644,
        "left": [],
        "modes": ["0o644", "0o755"],
    }
    name, _, tag = image.rpartition(":")
    repository = REGISTRY.repository(name)
    stored = repository.image(tag, "amd64")
    config = json.loads(repository.blob(stored.manifest.config.digest))["config"]
    assert config["User"] == "someone"
    assert config["WorkingDir"] == "/tmp"
    assert config["Entrypoint"] == ["/usr/bin/env"]
    assert config["Labels"] == dict(recipe.labels)
    for layer in stored.manifest.layers[1:]:
        url = f"http://{name.replace('/', '/v2/', 1)}/blobs/{layer.digest}"
        data = gzip.decompress(urllib3.request("GET", url).data)
        assert PASSWORD.encode() not in data


def test_docker_builds_an_image_of_packages_of_all_kinds(
    engine: Any, docker_registry: str, builder: DockerBuilder, recipe: Recipe
) -> None:
    image = f"{docker_registry}/kn/docker:{recipe.tag}"
    lines: list[str] = []

    digest = builder.build(recipe, image, BuildReports(line=lines.append))

    assert digest == digest_of(f"{docker_registry}/kn/docker", recipe.tag)
    check_image(engine, image, recipe)
    assert any(" + six==1.17.0" in line for line in lines)
    assert not any(PASSWORD in line for line in lines)
    assert builder.build(recipe, image, BuildReports(line=lines.append)) == digest


def test_a_changed_runner_installs_nothing_again(
    docker_registry: str, builder: DockerBuilder, recipe: Recipe
) -> None:
    lines: list[str] = []
    for text in (b"one", b"two"):
        changed = Recipe(
            target=recipe.target,
            base=recipe.base,
            packages=recipe.packages[2:3],
            files={RUNNER_PATH: text},
        )
        lines.clear()
        image = f"{docker_registry}/kn/runner:{changed.tag}"
        builder.build(changed, image, BuildReports(line=lines.append))

    assert not any("local-wheel==2.0" in line for line in lines)
    assert sum(line.endswith(" CACHED") for line in lines) >= 2


def test_a_wheel_of_this_machine_may_change_without_a_new_version(
    engine: Any, docker_registry: str, debian: str, builder: DockerBuilder, tmp_path: Path
) -> None:
    printed = []
    with cloud(engine, used_authorities()) as cloud_build:
        for each in (builder, cloud_build):
            for text in ("one", "two"):
                wheel = local_wheel(tmp_path, text)
                recipe = Recipe(target=Target(python="3.11"), base=debian, packages=(wheel,))
                image = f"{docker_registry}/kn/changed-{each.name}:{recipe.tag}"
                each.build(recipe, image, BuildReports())
                ran = engine.run("run", "--rm", "--entrypoint", "", image, "tool-of-wheel")
                printed.append(ran.stdout)

    assert printed == [b"one\n", b"two\n"] * 2


def test_cloud_build_builds_the_same_image(
    engine: Any, docker_registry: str, recipe: Recipe
) -> None:
    image = f"{docker_registry}/kn/cloud:{recipe.tag}"
    lines: list[str] = []
    with cloud(engine, used_authorities()) as builder:
        digest = builder.build(recipe, image, BuildReports(line=lines.append))

    assert digest == digest_of(f"{docker_registry}/kn/cloud", recipe.tag)
    check_image(engine, image, recipe)
    assert not any(PASSWORD in line for line in lines)


INVENTORY = """
import hashlib, json, os, sys
found = {"PATH": os.environ["PATH"]}
for top in ("/opt/kn", "/usr/local/lib/python3.11", "/app"):
    for folder, folders, files in os.walk(top):
        for path in (os.path.join(folder, name) for name in (*folders, *files)):
            data = open(path, "rb").read() if os.path.isfile(path) else b""
            stat = os.lstat(path)
            found[path] = [oct(stat.st_mode), stat.st_uid, hashlib.sha256(data).hexdigest()]
print(json.dumps(found))
"""
OF_THE_INSTALLER = ("INSTALLER", "RECORD", "REQUESTED", "uv_cache.json", "uv_build.json")


def inventory(engine: Any, image: str) -> dict[str, Any]:
    """Return the files that a build has added to its base, without what each installer writes in its way."""
    ran = engine.run("run", "--rm", "--entrypoint", "", image, "python3", "-c", INVENTORY)
    found = json.loads(ran.stdout)
    kept = {}
    for path, row in found.items():
        parts = Path(path).parts
        if "__pycache__" in parts or path.startswith("/opt/kn/include"):
            continue
        if not (parts[-1] in OF_THE_INSTALLER and parts[-2].endswith(".dist-info")):
            kept[path] = row[:2] if parts[:4] == ("/", "opt", "kn", "bin") else row
    return kept


def test_all_builders_make_the_same_files(
    engine: Any, docker_registry: str, debian: str, builder: DockerBuilder, tmp_path: Path
) -> None:
    packages = [
        from_index(name, version, "bdist_wheel")
        for name, version in (("six", "1.17.0"), ("setuptools", "80.9.0"), ("greenlet", "3.2.4"))
    ]
    recipe = Recipe(
        target=Target(python="3.11"),
        base=debian,
        packages=(*packages, local_wheel(tmp_path)),
        files={RUNNER_PATH: b"print('runner')\n"},
    )
    files = WheelFiles(tmp_path / "wheels", Downloader(environ=dict(ENVIRON)))
    layers = LayersBuilder(REGISTRY, files, tmp_path / "layers")
    images = {}
    with cloud(engine, used_authorities()) as cloud_build:
        for each in (layers, builder, cloud_build):
            images[each.name] = f"{docker_registry}/kn/same-{each.name}:{recipe.tag}"
            each.build(recipe, images[each.name], BuildReports())

    made = {name: inventory(engine, image) for name, image in images.items()}

    assert "/opt/kn/site/distutils-precedence.pth" in made["layers"]
    assert made["docker"] == made["layers"]
    assert made["cloud_build"] == made["layers"]


def test_a_failed_installation_shows_the_output_of_uv(
    docker_registry: str, builder: DockerBuilder, recipe: Recipe
) -> None:
    wheel = recipe.packages[0]
    wrong = LockedPackage(
        name="six", version="1.17.0", file=wheel.file, sha256="0" * 64, address=wheel.address
    )
    broken = Recipe(target=recipe.target, base=recipe.base, packages=(wrong,))

    with pytest.raises(BuildError, match="Hash mismatch for"):
        builder.build(broken, f"{docker_registry}/kn/broken:1", BuildReports())

    assert digest_of(f"{docker_registry}/kn/broken", "1") is None


def test_a_missing_base_image_is_named(docker_registry: str, builder: DockerBuilder) -> None:
    missing = f"{docker_registry}/base/none@sha256:{'1' * 64}"
    recipe = Recipe(target=Target(python="3.11"), base=missing)

    with pytest.raises(BuildError, match="base/none"):
        builder.build(recipe, f"{docker_registry}/kn/broken:3", BuildReports())


def own(base: str, command: str) -> BuildContext:
    """Return a context with a Dockerfile of a user."""
    text = f"FROM {base}\nRUN {command}\n"
    return BuildContext(
        {"docker/my.Dockerfile": ContextFile(text.encode())}, "docker/my.Dockerfile"
    )


def test_a_dockerfile_of_the_user_is_published_once_and_really_built_again_on_request(
    docker_registry: str, debian: str, builder: DockerBuilder, tmp_path: Path
) -> None:
    label = f"kinetic.python={Target(python='3.11').python}"
    text = f"FROM {debian}\nRUN cat /proc/sys/kernel/random/uuid > /made\nLABEL {label}\n"
    dockerfile = tmp_path / "image" / "Dockerfile"
    dockerfile.parent.mkdir()
    dockerfile.write_text(text)

    def publish(*, rebuild: bool) -> PublishedImage:
        repository = f"{docker_registry}/kn/base-cpu"
        return publish_dockerfile(
            dockerfile,
            repository,
            builder,
            REGISTRY,
            BuildReports(),
            tag="1",
            python="3.11",
            home=tmp_path / "home",
            rebuild=rebuild,
        )

    first, same, again = (publish(rebuild=rebuild) for rebuild in (False, False, True))

    assert (first.changed, same.changed, again.changed) == (True, False, True)
    assert (first.built_by, same.built_by, again.built_by) == ("docker", None, "docker")
    assert same.digest == first.digest != again.digest


def test_a_stopped_build_ends_in_the_engine_too(
    engine: Any, docker_registry: str, debian: str, builder: DockerBuilder
) -> None:
    lines: list[str] = []
    mark = f"sleep 31{os.getpid()}"

    def running() -> bool:
        found = subprocess.run(["pgrep", "-f", mark], capture_output=True, check=False)
        return found.returncode == 0

    with pytest.raises(Stopped), stoppable(running):
        builder.build_context(
            own(debian, mark),
            f"{docker_registry}/kn/own:2",
            BuildReports(line=lines.append),
        )

    for _ in range(100):
        if not running():
            break
        sleep(0.1)
    assert not running()
    assert digest_of(f"{docker_registry}/kn/own", "2") is None
