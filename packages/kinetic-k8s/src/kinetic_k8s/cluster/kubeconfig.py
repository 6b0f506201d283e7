"""Clusters that a context of the user's kubeconfig names. The file is only read."""

from __future__ import annotations

import difflib
import logging
from base64 import b64decode
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, cast
from urllib.parse import urlsplit

from kinetic_k8s.cluster.connection import Access, Credentials
from kinetic_k8s.cluster.proxies import proxy_of_environment, proxy_url
from kinetic_k8s.errors import InvalidRequestError, NotAuthenticatedError, UnknownContextError


def access_of(
    context: str | None = None, *, namespace: str | None = None, kubeconfig: str | None = None
) -> Access:
    """Return the address of a context's cluster, and how to authenticate to it.

    Credentials are read before the first request, and again when they have expired or the server rejects
    them: a credential plugin may ask for a password.

    Raises:
        UnknownContextError: There is no such context, or no readable kubeconfig.
        InvalidRequestError: The proxy is of a kind that is not supported.
    """
    # Imported here, because importing `kubernetes` takes 0.2 s.
    from kubernetes.config.kube_config import KUBE_CONFIG_DEFAULT_LOCATION

    paths = kubeconfig or KUBE_CONFIG_DEFAULT_LOCATION
    sections = _Sections(paths)
    name = context or sections.current
    found, _ = sections.entry("context", name)
    cluster, folder = sections.entry("cluster", found.get("cluster") or "")
    server = str(cluster.get("server") or "")
    if not server:
        raise UnknownContextError(f"The context {name!r} of the kubeconfig {paths} has no server.")
    if not _is_address(server):
        raise UnknownContextError(
            f"The context {name!r} of the kubeconfig {paths} has the server {server!r}, which is no address.",
            hint="Correct it: https://HOST:PORT.",
        )

    def again(_: float = 0.0) -> Access:
        return access_of(name, namespace=namespace, kubeconfig=paths)

    def credentials() -> Credentials:
        # Those of another cluster are not sent to this one.
        with suppress(InvalidRequestError):  # Then there are no credentials, either.
            access.check_same_cluster(again())
        return _credentials(paths, name)

    access = Access(
        server=server,
        credentials=credentials,
        namespace=namespace or found.get("namespace") or "default",
        context=name,
        ca=_certificates(cluster, folder),
        verify=not cluster.get("insecure-skip-tls-verify"),
        server_name=cluster.get("tls-server-name"),
        proxy=proxy_url(str(proxy), f"the context {name!r}")
        if (proxy := cluster.get("proxy-url"))
        else proxy_of_environment(server),
        look_up=again,
    )
    return access


class _Sections:
    """The entries of one or several kubeconfig files; of entries with the same name, the first."""

    def __init__(self, paths: str) -> None:
        from kubernetes.config import ConfigException
        from kubernetes.config.kube_config import KubeConfigMerger
        from yaml import YAMLError

        self._paths = paths
        try:
            merged = KubeConfigMerger(paths).config  # type: ignore[no-untyped-call]
        except (ConfigException, YAMLError, OSError, ValueError) as error:
            raise UnknownContextError(f"Cannot read the kubeconfig {paths}: {error}.") from error
        if merged is None:
            raise UnknownContextError(
                f"There is no kubeconfig at {paths}.",
                hint="For GKE: gcloud container clusters get-credentials CLUSTER --location=ZONE",
            )
        self._merged = merged.value

    @property
    def current(self) -> str:
        """The name of the current context."""
        name = self._merged.get("current-context")
        if not name:
            raise UnknownContextError(
                f"The kubeconfig {self._paths} has no current context.", hint=self._contexts_hint()
            )
        return str(name)

    def entry(self, kind: str, name: str) -> tuple[dict[str, Any], Path]:
        """Return the *kind* of that name, and the folder to which its paths are relative."""
        for node in self._merged.get(f"{kind}s") or ():
            if node.value.get("name") == name:
                found = node.value.get(kind) or {}
                if isinstance(found, dict):
                    return found, Path(node.path).absolute().parent
        raise UnknownContextError(
            f"The kubeconfig {self._paths} has no {kind} {name!r}.",
            hint=self._contexts_hint(name if kind == "context" else ""),
        )

    def _contexts_hint(self, wanted: str = "") -> str:
        """Return a hint with the contexts that are similar to *wanted*, or else with all."""
        names = sorted(str(node.value.get("name")) for node in self._merged.get("contexts") or ())
        if near := difflib.get_close_matches(wanted, names, n=3):
            return f"Did you mean {' or '.join(map(repr, near))}?"
        return f"Its contexts are: {', '.join(names) or 'none'}."


def _is_address(server: str) -> bool:
    try:
        parts = urlsplit(server)
        return parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:  # The port is too large.
        return False


def _certificates(cluster: dict[str, Any], folder: Path) -> str | None:
    try:
        if data := cluster.get("certificate-authority-data"):
            return b64decode(str(data)).decode("ascii")
        if path := cluster.get("certificate-authority"):
            return (folder / str(path)).read_text(encoding="ascii")
    except (OSError, ValueError) as error:
        raise UnknownContextError(
            f"Cannot read the certificates of the cluster: {error}."
        ) from error
    return None


def _credentials(paths: str, context: str) -> Credentials:
    """Return the credentials of *context*; run its credential plugin, if it names one."""
    from kubernetes.client import Configuration
    from kubernetes.config import ConfigException
    from kubernetes.config.kube_config import KubeConfigLoader, KubeConfigMerger

    configuration = Configuration()
    renew_at = None
    with _collected_log_messages() as messages:
        try:
            # Without a persister it does not write renewed tokens to the user's file.
            loader = KubeConfigLoader(  # type: ignore[no-untyped-call]
                config_dict=KubeConfigMerger(paths).config,  # type: ignore[no-untyped-call]
                active_context=context,
                config_base_path=None,
            )
            loader.load_and_set(configuration)  # type: ignore[no-untyped-call]
            renew_at = getattr(loader, "expiry", None)
        except (ConfigException, OSError, ValueError) as error:
            messages.append(str(error))
    token = configuration.api_key.get("BearerToken")
    certificate = (configuration.cert_file, configuration.key_file)
    if messages and not token and not all(certificate):
        # It is in a terminal that plugins write their own message, and then `kubernetes` fails to read it.
        causes = [each for each in messages if "NoneType" not in each] or [
            "see the plugin's message"
        ]
        raise NotAuthenticatedError(
            f"The context {context!r} of the kubeconfig {paths} provided no credentials: "
            f"{'; '.join(causes)}.",
            hint=f"Log in again; `kubectl --context {context} get pods` then succeeds as well.",
        )
    return Credentials(
        # The file of a token ends with a line break.
        headers={"Authorization": token.strip()} if token else {},
        certificate=cast("tuple[str, str]", certificate) if all(certificate) else None,
        renew_at=renew_at,
    )


@contextmanager
def _collected_log_messages() -> Iterator[list[str]]:
    """Collect log messages of `kubernetes`, which reports the failure of a credential plugin only there.

    Without a handler, its first message would configure the logging of the whole process.
    """
    messages: list[str] = []

    class Collector(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if record.module == "kube_config":
                messages.append(record.getMessage().strip().rstrip("."))

    collector = Collector()
    root = logging.getLogger()
    root.addHandler(collector)
    try:
        yield messages
    finally:
        root.removeHandler(collector)
