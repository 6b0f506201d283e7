"""Clusters as kubeconfigs name them: tokens, plugins, certificates, proxies."""

from __future__ import annotations

import json
import logging
import sys
from base64 import b64decode
from pathlib import Path
from typing import Any

import pytest

from kinetic_k8s.cluster.connect import connect
from kinetic_k8s.errors import NotAuthenticatedError, NotPermittedError, UnknownContextError

PLUGIN = """
import json, pathlib, sys
tokens = pathlib.Path(sys.argv[1])
first, _, rest = tokens.read_text().partition(" ")
if not first:
    sys.exit("Your session has ended: run `sso login`.")
tokens.write_text(rest)
print(json.dumps({"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential",
                  "status": {"token": first, "expirationTimestamp": sys.argv[2]}}))
"""


@pytest.fixture
def kubeconfig(bed: Any, tmp_path: Path) -> dict[str, Any]:
    """The administrator's kubeconfig as data, its certificates in a file beside it."""
    config = json.loads(Path(bed.kubeconfig).read_text())
    cluster = config["clusters"][0]["cluster"]
    (tmp_path / "ca.pem").write_bytes(b64decode(cluster.pop("certificate-authority-data")))
    cluster["certificate-authority"] = "ca.pem"
    return config


def write(config: dict[str, Any], folder: Path) -> str:
    path = folder / "config"
    path.write_text(json.dumps(config))
    return str(path)


def with_plugin(
    config: dict[str, Any], folder: Path, tokens: str, *, expiry: str = "2100-01-01T00:00:00Z"
) -> str:
    """Return the path of a kubeconfig whose plugin hands out these *tokens*, one at each call."""
    (folder / "plugin.py").write_text(PLUGIN)
    (folder / "tokens").write_text(tokens)
    config["users"][0]["user"] = {
        "exec": {
            "apiVersion": "client.authentication.k8s.io/v1",
            "command": sys.executable,
            "args": [str(folder / "plugin.py"), str(folder / "tokens"), expiry],
            "interactiveMode": "Never",
        }
    }
    return write(config, folder)


def test_a_context_is_found_by_name_with_files_beside_its_kubeconfig(
    kubeconfig: dict[str, Any], tmp_path: Path
) -> None:
    kubeconfig["current-context"] = ""
    path = write(kubeconfig, tmp_path)

    cluster = connect("kube-bed", kubeconfig=path)

    assert cluster.get("Namespace", "default") is not None
    assert str(cluster.identity).startswith("namespace 'default' of https://127.0.0.1:")
    assert cluster.identity.context == "kube-bed"
    assert connect("kube-bed", kubeconfig=path, namespace="x").identity.namespace == "x"
    with pytest.raises(UnknownContextError, match="no current context") as caught:
        connect(kubeconfig=path)
    assert caught.value.hint == "Its contexts are: kube-bed."


def test_a_missing_context_or_kubeconfig_is_named(bed: Any, tmp_path: Path) -> None:
    with pytest.raises(UnknownContextError, match="no context 'prod'") as far:
        connect("prod", kubeconfig=bed.kubeconfig)
    assert far.value.hint == "Its contexts are: kube-bed."
    with pytest.raises(UnknownContextError, match="no context 'kube-bad'") as near:
        connect("kube-bad", kubeconfig=bed.kubeconfig)
    assert near.value.hint == "Did you mean 'kube-bed'?"
    with pytest.raises(UnknownContextError, match="There is no kubeconfig at"):
        connect(kubeconfig=str(tmp_path / "none"))
    (tmp_path / "broken").write_text("{")
    with pytest.raises(UnknownContextError, match="Cannot read the kubeconfig"):
        connect(kubeconfig=str(tmp_path / "broken"))


def test_a_plugin_runs_again_when_its_token_is_rejected(
    kubeconfig: dict[str, Any], tmp_path: Path
) -> None:
    path = with_plugin(kubeconfig, tmp_path, "expired kube-bed-admin")
    before = Path(path).read_bytes()

    assert connect(kubeconfig=path).get("Namespace", "default") is not None
    assert (tmp_path / "tokens").read_text() == ""
    assert Path(path).read_bytes() == before


def test_a_plugin_runs_again_when_its_token_has_expired(
    kubeconfig: dict[str, Any], tmp_path: Path
) -> None:
    path = with_plugin(kubeconfig, tmp_path, "kube-bed-admin wrong", expiry="2020-01-01T00:00:00Z")
    cluster = connect(kubeconfig=path)
    cluster.get("Namespace", "default")

    assert (tmp_path / "tokens").read_text() == "wrong"
    with pytest.raises(NotAuthenticatedError):
        cluster.get("Namespace", "default")
    assert (tmp_path / "tokens").read_text() == ""


def test_of_several_kubeconfigs_the_first_one_decides(
    kubeconfig: dict[str, Any], tmp_path: Path
) -> None:
    (tmp_path / "empty").write_text("# nothing yet\n")
    other = {"current-context": "other", "contexts": [{"name": "kube-bed", "context": {}}, {}]}
    (tmp_path / "other").write_text(json.dumps(other))
    paths = f"{tmp_path / 'empty'}:{write(kubeconfig, tmp_path)}:{tmp_path / 'other'}"

    cluster = connect(kubeconfig=paths)

    assert cluster.identity.context == "kube-bed"
    assert cluster.get("Namespace", "default") is not None


def test_a_token_is_read_from_its_file(kubeconfig: dict[str, Any], tmp_path: Path) -> None:
    (tmp_path / "token").write_text("kube-bed-admin\n")
    kubeconfig["users"][0]["user"] = {"tokenFile": "token", "token": "old"}

    cluster = connect(kubeconfig=write(kubeconfig, tmp_path))

    assert cluster.get("Namespace", "default") is not None


def test_a_context_acts_as_the_user_whom_it_names(
    kubeconfig: dict[str, Any], tmp_path: Path
) -> None:
    user = kubeconfig["users"][0]["user"]
    user["as"] = "jäne"
    with pytest.raises(NotPermittedError, match="jäne"):
        connect(kubeconfig=write(kubeconfig, tmp_path)).get("Namespace", "default")

    user["as-groups"] = ["system:masters", "others"]
    user["as-user-extra"] = {"example.com/Reason": ["a", "b"]}
    cluster = connect(kubeconfig=write(kubeconfig, tmp_path))
    assert cluster.get("Namespace", "default") is not None


def test_certificates_may_have_comments_in_any_script(
    kubeconfig: dict[str, Any], tmp_path: Path
) -> None:
    path, file = write(kubeconfig, tmp_path), tmp_path / "ca.pem"
    file.write_text("# Für den Testcluster\n" + file.read_text(), encoding="utf-8")
    assert connect(kubeconfig=path).get("Namespace", "default") is not None

    file.write_text("none")
    with pytest.raises(UnknownContextError, match="Cannot read the certificates"):
        connect(kubeconfig=path)


def test_a_plugin_gets_the_cluster_if_its_configuration_requests_it(
    kubeconfig: dict[str, Any], tmp_path: Path
) -> None:
    with_plugin(kubeconfig, tmp_path, "kube-bed-admin")
    (tmp_path / "plugin.py").write_text(
        'import json, os\ncluster = json.loads(os.environ["KUBERNETES_EXEC_INFO"])["spec"]["cluster"]\n'
        'assert cluster["certificate-authority-data"], cluster\n' + PLUGIN
    )
    kubeconfig["users"][0]["user"]["exec"]["provideClusterInfo"] = True

    assert connect(kubeconfig=write(kubeconfig, tmp_path)).get("Namespace", "default") is not None


def test_a_plugin_that_is_not_installed_is_named(
    kubeconfig: dict[str, Any], tmp_path: Path
) -> None:
    with_plugin(kubeconfig, tmp_path, "")
    plugin = kubeconfig["users"][0]["user"]["exec"]
    plugin |= {"command": "no-such-plugin", "installHint": "apt-get install it"}

    with pytest.raises(NotAuthenticatedError, match="'no-such-plugin' is not installed") as caught:
        connect(kubeconfig=write(kubeconfig, tmp_path)).get("Namespace", "default")
    assert caught.value.hint == "apt-get install it"


def test_a_plugin_that_fails_is_quoted_and_no_logging_is_set_up(
    kubeconfig: dict[str, Any], tmp_path: Path
) -> None:
    path = with_plugin(kubeconfig, tmp_path, "")
    handlers = list(logging.getLogger().handlers)

    with pytest.raises(NotAuthenticatedError, match="run `sso login`"):
        connect(kubeconfig=path).get("Namespace", "default")

    assert logging.getLogger().handlers == handlers
