"""Detached processes, which outlive this one: what they inherit, and how they are reaped."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping, Sequence
from typing import Final

_BASE: Final = frozenset(
    {
        "PATH", "HOME", "LANG", "LANGUAGE", "TZ", "TMPDIR", "USER", "LOGNAME", "SHELL",
        "SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE",
        "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY",
        "http_proxy", "https_proxy", "all_proxy", "no_proxy",
        "LD_LIBRARY_PATH",
    }
)  # fmt: skip


_BASE_PREFIXES: Final = ("LC_", "DYLD_")

_VARIABLES: Final = (
    "CLOUDSDK_ACTIVE_CONFIG_NAME",
    "GCE_METADATA_HOST",
    "GCE_METADATA_IP",
    "GCE_METADATA_ROOT",
    "GOOGLE_API_USE_CLIENT_CERTIFICATE",
    "GOOGLE_API_USE_MTLS_ENDPOINT",
    "GOOGLE_CLOUD_PROJECT",
    "GOOGLE_CLOUD_QUOTA_PROJECT",
    "GOOGLE_CLOUD_UNIVERSE_DOMAIN",
    "GOOGLE_EXTERNAL_ACCOUNT_ALLOW_EXECUTABLES",
    "KINETIC_STORAGE_ENDPOINT",
    "NO_GCE_CHECK",
    "STORAGE_EMULATOR_HOST",
)
_PATHS: Final = (
    "CLOUDSDK_CONFIG",
    "GOOGLE_API_CERTIFICATE_CONFIG",
    "GOOGLE_APPLICATION_CREDENTIALS",
)


def base_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the part of *environment* that every process on this machine needs.

    Nothing else is passed on, so that a local run already shows a forgotten `capture_env_vars`.
    """
    return {
        name: value
        for name, value in environment.items()
        if name in _BASE or name.startswith(_BASE_PREFIXES)
    }


def bucket_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the variables of *environment* that name the bucket service and its credentials.

    User code gets them too, as it gets the service account on a cluster.
    """
    found = {name: environment[name] for name in _VARIABLES if environment.get(name)}
    # Absolute, because processes of a job have other working directories.
    paths = {name: os.path.abspath(environment[name]) for name in _PATHS if environment.get(name)}  # noqa: PTH100
    return found | paths


class _Detached(subprocess.Popen[bytes]):
    """A process that is meant to outlive this one, so `Popen` must not warn that it still runs."""

    def __del__(self) -> None:
        pass


_started: list[_Detached] = []


def reap() -> None:
    """Collect the processes that this one started and that have ended: otherwise they stay as zombies."""
    _started[:] = [process for process in _started if process.poll() is None]


def start_detached(
    command: Sequence[str],
    *,
    environment: Mapping[str, str],
    stdin: int = subprocess.DEVNULL,
    output: int = subprocess.DEVNULL,
    pass_fds: Sequence[int] = (),
) -> None:
    """Start *command* in a session of its own, in the root folder."""
    reap()
    process = _Detached(
        command,
        stdin=stdin,
        stdout=output,
        stderr=output,
        cwd="/",
        env=environment,
        pass_fds=pass_fds,
        start_new_session=True,
    )
    _started.append(process)
