"""Pathways' server is not available; its client is a stand-in here, as are two distributions of JAX."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import kinetic_payload
import kinetic_runner
from kinetic_runner.child.pathways import PathwaysError, check

SOURCES = [str(Path(str(p.__file__)).parents[1]) for p in (kinetic_runner, kinetic_payload)]
CODE = f"""
import sys; sys.path[:0] = [sys.argv[1], *{SOURCES!r}]
from kinetic_runner.child import pathways
pathways.prepare("jax-0.10.0")
print("jax" in sys.modules, "pathwaysutils" in sys.modules)
import jax
print(jax.ready)
"""
JAX = "import os\nready = 'not yet'\nsecure = os.environ['IFRT_PROXY_USE_INSECURE_GRPC_CREDENTIALS']\n"
UTILS = "import jax\ndef initialize(): jax.ready = f'initialized, {jax.secure}'\n"


@pytest.mark.parametrize(
    ("tag", "version", "expected"),
    [
        ("jax-0.10.0", "0.10.2", None),
        ("20260929-jax_0.10.1", "0.10.2.dev1", None),
        ("latest", "0.12.0", None),
        ("jax-0.10.0", "0.12.1", r"JAX 0\.10 .*jax-0\.10\.0.* has JAX 0\.12\.1"),
        ("jax-0.1.0", "0.10.0", r"JAX 0\.1 "),
    ],
)
def test_components_fit_the_same_minor_version(
    tag: str, version: str, expected: str | None
) -> None:
    if expected is None:
        check(tag, version, installed=True)
    else:
        with pytest.raises(PathwaysError, match=expected) as caught:
            check(tag, version, installed=True)
        assert "jax==0.1" in str(caught.value.hint)


def run(folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-S", "-c", CODE, str(folder)],
        env={**os.environ, "JAX_PLATFORMS": "proxy"},  # noqa: TID251 - the same, but for JAX
        capture_output=True,
        text=True,
    )


def test_the_client_is_initialised_before_user_code_sees_jax(tmp_path: Path) -> None:
    (tmp_path / "jax.py").write_text(JAX)
    metadata = tmp_path / "jax-0.10.2.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: jax\nVersion: 0.10.2\n")

    assert "pathwaysutils is not installed" in run(tmp_path).stderr
    (tmp_path / "pathwaysutils.py").write_text("import absent_package")
    assert (
        "pathwaysutils cannot be imported: No module named 'absent_package'" in run(tmp_path).stderr
    )
    (tmp_path / "pathwaysutils.py").write_text(UTILS)
    assert run(tmp_path).stdout == "False False\ninitialized, true\n"
