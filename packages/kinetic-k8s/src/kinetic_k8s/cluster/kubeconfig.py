"""Clusters that a context of the user's kubeconfig names. The file is only read."""

from __future__ import annotations

import difflib
import os
import ssl
from base64 import b64decode, b64encode
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote, urlsplit

from urllib3 import HTTPHeaderDict

from kinetic_k8s.cluster.connection import Access, Credentials
from kinetic_k8s.errors import (
    ClusterChangedError,
    InvalidRequestError,
    NotAuthenticatedError,
    UnknownContextError,
)
from kinetic_payload.proxies import proxy_of_environment, proxy_url

_STANDARD: Final = "~/.kube/config"
_LOADED: Final = ("username", "client-certificate", "client-certificate-data")
"""Fields of a user that `kubernetes` understands for us; importing it takes 0.2 s. A token is sent as it is."""
_IN_HEADER_NAMES: Final = "!#$&'*+^`|"
"""Characters of the names of headers that `quote` would escape."""
_KINDS: Final = {str: "text", bool: "boolean", list: "list", dict: "object"}
"""How messages call the types of fields."""
_ANY: Final = object
_CLUSTER: Final = {
    **dict.fromkeys(("server", "proxy-url", "tls-server-name"), str),
    **dict.fromkeys(("insecure-skip-tls-verify", "disable-compression"), bool),
    **dict.fromkeys(("certificate-authority", "certificate-authority-data"), str),
    "extensions": [{"name": str, "extension": _ANY}],
}
_PLUGIN: Final = {
    **dict.fromkeys(("apiVersion", "command", "installHint"), str),
    "args": [str],
    "env": [{"name": str, "value": str}],
    "provideClusterInfo": bool,
}
_USER: Final = {
    **dict.fromkeys((*_LOADED, "password", "client-key", "client-key-data"), str),
    **dict.fromkeys(("token", "tokenFile", "as", "as-uid"), str),
    "exec": _PLUGIN,
    "auth-provider": {"name": str, "config": {"id-token": str}},
    "as-groups": [str],
    "as-user-extra": {_ANY: [str]},
}
_FILE: Final = {
    "current-context": str,
    "contexts": [{"name": str, "context": dict.fromkeys(("cluster", "user", "namespace"), str)}],
    "clusters": [{"name": str, "cluster": _CLUSTER}],
    "users": [{"name": str, "user": _USER}],
}
"""The fields that are read. As for `kubectl`, one of another type makes the file invalid."""
_STATUS: Final = dict.fromkeys(
    ("token", "clientCertificateData", "clientKeyData", "expirationTimestamp"), str
)
"""The fields of a plugin's answer that are read."""


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
    paths = kubeconfig or os.environ.get("KUBECONFIG") or _STANDARD  # noqa: TID251 - kubectl's variable
    config = _Kubeconfig.read(paths)
    name = context or config.current
    found = config.entry("context", name).fields
    cluster = config.entry("cluster", found.get("cluster") or "")
    server = _server_of(cluster)
    if not server:
        raise UnknownContextError(f"The context {name!r} of the kubeconfig {paths} has no server.")
    # `kubectl` would use plain HTTP for an address without a scheme, and send no credentials.
    checks = {
        "server": _is_address,
        "proxy-url": str.isprintable,
        "tls-server-name": str.isprintable,
    }
    for field, valid in checks.items():
        value = server if field == "server" else str(cluster.fields.get(field) or "")
        if not valid(value):
            raise UnknownContextError(
                f"The context {name!r} of the kubeconfig {paths} has the {field} {value!r}, which is no address.",
                hint="Correct it; a server is https://HOST:PORT.",
            )

    def credentials() -> Credentials:
        # Those of another cluster are not sent to this one.
        with suppress(InvalidRequestError):  # Then there are no credentials, either.
            now = access_of(name, namespace=namespace, kubeconfig=paths)
            if not access.is_at(now):
                raise ClusterChangedError(
                    f"The context {name!r} of the kubeconfig {paths} leads to another address or certificate now: to "
                    f"{now.server}, instead of {server}. Nothing was sent there.",
                    hint="What runs in the first cluster is still there, and may cost money. To use what the context "
                    "names now, start a new process.",
                )
        try:
            return _credentials(paths, name)
        except UnknownContextError as error:
            # The context was there when the access was made: the file may be being rewritten.
            raise NotAuthenticatedError(error.message, hint=error.hint) from error

    proxy = cluster.fields.get("proxy-url")
    access = Access(
        server=server,
        credentials=credentials,
        namespace=namespace or found.get("namespace") or "default",
        context=name,
        ca=_certificates(cluster),
        verify=not cluster.fields.get("insecure-skip-tls-verify"),
        server_name=cluster.fields.get("tls-server-name") or None,
        proxy=proxy_url(proxy, f"the context {name!r}") if proxy else proxy_of_environment(server),
    )
    return access


@dataclass(frozen=True)
class _Entry:
    """An entry of a kubeconfig, such as a user."""

    fields: dict[str, Any]
    file: Path

    @property
    def folder(self) -> Path:
        """The folder to which its paths are relative."""
        return self.file.parent


@dataclass(frozen=True)
class _Kubeconfig:
    """One or several kubeconfig files. As for `kubectl`, the first one that has a value decides."""

    paths: str
    files: tuple[_Entry, ...]

    @classmethod
    def read(cls, paths: str) -> _Kubeconfig:
        """Read those files of *paths* that exist."""
        from yaml import safe_load

        files = []
        for text in filter(None, paths.split(os.pathsep)):
            try:
                path = Path(text).expanduser().absolute()
                if path.exists():
                    found = safe_load(path.read_text(encoding="utf-8")) or {}
                    files.append(_Entry(_checked(found, _FILE), path))
                continue
            except (OSError, RuntimeError, InvalidRequestError) as error:
                why = str(error)
            except Exception as error:  # noqa: BLE001 - for `!!bool x`, PyYAML raises KeyError
                mark = getattr(error, "problem_mark", None)
                why = f"it is no YAML{f' in line {mark.line + 1}' if mark else ''}"
            # Without its cause: YAML's errors quote the file, which contains secrets.
            raise UnknownContextError(f"Cannot read the kubeconfig {text}: {why}.")
        if not files:
            raise UnknownContextError(
                f"There is no kubeconfig at {paths}.",
                hint="For GKE: gcloud container clusters get-credentials CLUSTER --location=ZONE",
            )
        return cls(paths, tuple(files))

    @property
    def current(self) -> str:
        """The name of the current context."""
        for file in self.files:
            if name := file.fields.get("current-context"):
                return str(name)
        raise UnknownContextError(
            f"The kubeconfig {self.paths} has no current context.", hint=self._hint("")
        )

    def entry(self, kind: str, name: str) -> _Entry:
        """Return the *kind* of that name."""
        for file in self.files:
            for each in file.fields.get(f"{kind}s", ()):
                if each.get("name") == name:
                    return _Entry(each.get(kind, {}), file.file)
        raise UnknownContextError(
            f"The kubeconfig {self.paths} has no {kind} {name!r}.",
            hint=self._hint(name if kind == "context" else ""),
        )

    def _hint(self, wanted: str) -> str:
        """Return a hint with the contexts that are similar to *wanted*, or else with all."""
        contexts = [each for file in self.files for each in file.fields.get("contexts", ())]
        names = sorted({each.get("name", "") for each in contexts})
        if near := difflib.get_close_matches(wanted, names, n=3):
            return f"Did you mean {' or '.join(map(repr, near))}?"
        return f"Its contexts are: {', '.join(names) or 'none'}."


def _checked(value: Any, shape: Any, name: str = "") -> Any:
    """Return what *shape* has of *value*; null counts as absent.

    Raises:
        InvalidRequestError: *name*, or a part of it, has another type. Its value may be a secret, and is not shown.
    """
    kind: Any = type(shape) if isinstance(shape, (dict, list)) else shape
    if not isinstance(value, kind):
        raise InvalidRequestError(f"{f'`{name}`' if name else 'it'} is no {_KINDS[kind]}")
    if isinstance(shape, dict):
        fields = dict.fromkeys(value, shape[_ANY]) if _ANY in shape else shape
        return {
            key: _checked(value[key], each, f"{name}.{key}".lstrip("."))
            for key, each in fields.items()
            if value.get(key) is not None
        }
    if isinstance(shape, list):
        return [
            _checked(each, shape[0], f"{name}[{i}]")
            for i, each in enumerate(value)
            if each is not None
        ]
    return value


def _server_of(cluster: _Entry) -> str:
    """Return the address of the server, with its scheme in lower case."""
    scheme, colon, rest = cluster.fields.get("server", "").partition(":")
    return f"{scheme.lower()}{colon}{rest}"


def _is_address(server: str) -> bool:
    try:
        parts = urlsplit(server)
        named = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
        return named and server.isprintable()
    except ValueError:  # The port is too large.
        return False


def _certificates(cluster: _Entry) -> str | None:
    try:
        if data := cluster.fields.get("certificate-authority-data"):
            found = b64decode(data)
        elif path := cluster.fields.get("certificate-authority"):
            found = (cluster.folder / path).read_bytes()
        else:
            return None
        # Comments between certificates may have any characters.
        text = found.decode("ascii", errors="ignore")
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(cadata=text)
    except (OSError, ValueError) as error:
        raise UnknownContextError(
            f"Cannot read the certificates of the cluster in the kubeconfig {cluster.file}: {error}."
        ) from error
    return text


def _credentials(paths: str, context: str) -> Credentials:
    """Return the credentials of *context*; run its credential plugin, if it names one.

    Raises:
        NotAuthenticatedError: It has none that can be used.
    """
    config = _Kubeconfig.read(paths)
    found = config.entry("context", context).fields
    cluster = config.entry("cluster", found.get("cluster") or "")
    try:
        user = config.entry("user", found.get("user") or "")
    except UnknownContextError:
        return Credentials()  # The server may accept requests of nobody.
    log_in = f"Log in again; `kubectl --context {context} get pods` then succeeds as well."
    try:
        return _credentials_of(user, cluster)
    except FileNotFoundError as error:
        why = str(error)
        plugin = user.fields.get("exec", {})
        if error.filename in (plugin.get("command"), _command_of(plugin, user.folder)):
            why = f"its credential plugin {plugin.get('command')!r} is not installed"
            log_in = plugin.get("installHint", "").strip() or "Install it."
    except (OSError, ValueError) as error:
        why = str(error)
    raise NotAuthenticatedError(
        f"The context {context!r} of the kubeconfig {paths} provided no credentials: "
        f"{why.strip().rstrip('.')}.",
        hint=log_in,
    )


def _credentials_of(user: _Entry, cluster: _Entry) -> Credentials:
    headers = _impersonation(user.fields)
    if _server_of(cluster).startswith("http:"):
        # As `kubectl`, send no secret without encryption; `kubectl proxy` adds credentials itself.
        return Credentials(headers=headers)
    fields = {name: value for name, value in user.fields.items() if value != ""}
    if path := fields.pop("tokenFile", None):
        fields["token"] = (user.folder / path).read_text(encoding="utf-8").strip()
    renew_at = None
    if (plugin := fields.pop("exec", None)) and "token" not in fields:
        status = _ask_plugin(plugin, user.folder, cluster)
        if token := status.get("token"):
            fields["token"] = token
        certificate, key = status.get("clientCertificateData"), status.get("clientKeyData")
        if certificate and key:
            fields["client-certificate-data"] = b64encode(certificate.encode()).decode()
            fields["client-key-data"] = b64encode(key.encode()).decode()
        elif not token:
            raise ValueError("the plugin returned neither a token nor a certificate with its key")
        if expiry := status.get("expirationTimestamp"):
            try:
                renew_at = datetime.fromisoformat(expiry).astimezone(UTC)
            except (ValueError, OverflowError):
                raise ValueError("the `expirationTimestamp` of its plugin is no time") from None
    if provider := fields.pop("auth-provider", None):
        if provider.get("name") != "oidc":
            raise ValueError(
                f"the auth provider {provider.get('name')!r} is not supported, as by kubectl"
            )
        # The server decides whether it has expired. It is not renewed here: the new refresh token would have
        # to be written to the file, as kubectl does it.
        if not (token := provider.get("config", {}).get("id-token")):
            raise ValueError("its auth provider has no id-token")
        fields["token"] = token
    if any(name in fields for name in _LOADED):
        authorization, certificates = _load(fields, user.folder)
    else:
        token = fields.get("token")
        authorization, certificates = f"Bearer {token}" if token else "", None
    if authorization:
        if not (authorization.isascii() and authorization.isprintable()):
            raise ValueError("the token has characters that cannot be sent, such as a line break")
        headers["Authorization"] = authorization
    return Credentials(headers=headers, certificate=certificates, renew_at=renew_at)


def _load(fields: dict[str, Any], folder: Path) -> tuple[str, tuple[str, str] | None]:
    """Return the header `Authorization` of a user and the files of its certificate and key, as `kubernetes` finds them.

    Raises:
        ValueError: A field is invalid.
    """
    from kubernetes.client import Configuration
    from kubernetes.config import ConfigException
    from kubernetes.config.kube_config import KubeConfigLoader

    configuration = Configuration()
    loader = KubeConfigLoader(  # type: ignore[no-untyped-call]
        config_dict={
            "contexts": [{"name": "ours", "context": {"cluster": "ours", "user": "ours"}}],
            "clusters": [{"name": "ours", "cluster": {"server": "https://-"}}],
            "users": [{"name": "ours", "user": fields}],
        },
        active_context="ours",
        config_base_path=str(folder),
    )
    try:
        loader.load_and_set(configuration)  # type: ignore[no-untyped-call]
    except ConfigException as error:
        raise ValueError(str(error)) from error
    certificate, key = configuration.cert_file, configuration.key_file
    return (
        configuration.api_key.get("BearerToken") or "",
        (certificate, key) if certificate and key else None,
    )


def _ask_plugin(plugin: dict[str, Any], folder: Path, cluster: _Entry) -> dict[str, Any]:
    """Run a credential plugin; return the status that it prints.

    https://kubernetes.io/docs/reference/access-authn-authz/authentication/#client-go-credential-plugins
    """
    from kubernetes.config import ConfigException
    from kubernetes.config.exec_provider import ExecProvider
    from kubernetes.config.kube_config import ConfigNode

    # A path would be relative to a file that the plugin does not know.
    about = {name: each for name, each in cluster.fields.items() if name != "certificate-authority"}
    if (certificates := _certificates(cluster)) is not None:
        about["certificate-authority-data"] = b64encode(certificates.encode()).decode()
    settings = {**plugin, "command": _command_of(plugin, folder)}
    try:
        status = ExecProvider(  # type: ignore[no-untyped-call]
            ConfigNode("exec", settings),  # type: ignore[no-untyped-call]
            None,
            ConfigNode("cluster", about),  # type: ignore[no-untyped-call]
        ).run()
        return dict(_checked(status, _STATUS, "status"))
    except AttributeError as error:
        # In a terminal, plugins write their own message, and then `kubernetes` fails to read it.
        raise ValueError("see the plugin's message") from error
    except ConfigException as error:
        raise ValueError(str(error)) from error
    except (TypeError, LookupError, RecursionError, InvalidRequestError) as error:
        raise ValueError(f"what its plugin is sent or returned is malformed: {error}") from error


def _command_of(plugin: dict[str, Any], folder: Path) -> str:
    """Return the program of *plugin*: as for `kubectl`, a relative path begins at the kubeconfig."""
    command = plugin.get("command", "")
    return str(folder / command) if os.sep in command else command


def _impersonation(user: dict[str, Any]) -> HTTPHeaderDict:
    """Return the headers by which requests are those of another user.

    https://kubernetes.io/docs/reference/access-authn-authz/user-impersonation/
    """
    values = [("User", user.get("as")), ("Uid", user.get("as-uid"))]
    values += [("Group", group) for group in user.get("as-groups", ())]
    for name, texts in user.get("as-user-extra", {}).items():
        values += [
            (f"Extra-{quote(str(name).lower(), safe=_IN_HEADER_NAMES)}", text) for text in texts
        ]
    headers = HTTPHeaderDict()
    for name, value in values:
        if value and not value.isprintable():
            raise ValueError(f"{value!r}, as whom its user acts, cannot be sent")
        if value:
            headers.add(f"Impersonate-{name}", value.encode().decode("latin-1"))
    return headers
