"""Build secrets: credentials of indexes and certificates, which never become part of a context or a layer."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from kinetic_images.uv import cleaned
from kinetic_payload.files.private import write_private
from kinetic_payload.printable import printable_log

CA_SECRET: Final = "ca"  # noqa: S105 - a name
"""The build secret with the certificates of the authorities to trust."""
NETRC_SECRET: Final = "netrc"  # noqa: S105 - a name
"""The build secret with the credentials of indexes and repositories, as in `~/.netrc`."""
_WORD: Final = r'("(?:[^"\\]|\\.)*"|\S+)'
_LOGIN: Final = re.compile(rf"\blogin\s+{_WORD}\s+password\s+{_WORD}")
_HOST: Final = re.compile(r"^machine (\S+)", re.MULTILINE)
_NO_PASSWORDS: Final = ("", "x-oauth-basic")
_SHORTEST: Final = 4
"""Shorter passwords are not looked for: they would hide ordinary text."""


@dataclass(frozen=True)
class BuildSecrets:
    """What a build may read, and its result must not contain."""

    netrc: str = field(default="", repr=False)
    """Credentials of indexes and repositories, in the format of `~/.netrc`."""
    ca: Path | None = None
    """A file with the certificates of the authorities to trust; None: those of the base image."""

    @property
    def hosts(self) -> tuple[str, ...]:
        """The hosts for which `netrc` has credentials."""
        return tuple(_HOST.findall(self.netrc))

    @contextmanager
    def files(self) -> Iterator[Mapping[str, Path]]:
        """Yield the secrets as files, by their ids; copies exist only during the block."""
        found = {} if self.ca is None else {CA_SECRET: self.ca}
        if not self.netrc:
            yield found
            return
        with TemporaryDirectory(prefix="kinetic-secrets-") as folder:
            path = Path(folder, NETRC_SECRET)
            write_private(path, self.netrc.encode())
            yield {**found, NETRC_SECRET: path}

    def clean(self, line: str) -> str:
        """Return a *line* of a build's log without credentials, colours and control characters."""
        line = line[: len(line) - len(line.lstrip())] + cleaned(line)
        logins = [
            [
                re.sub(r"\\(.)", r"\1", each[1:-1]) if each.startswith('"') else each
                for each in found
            ]
            for found in _LOGIN.findall(self.netrc)
        ]
        # For some services, a token is the user.
        secrets = {user if password in _NO_PASSWORDS else password for user, password in logins}
        # The longest first, because one may be part of another.
        for secret in sorted(secrets, key=len, reverse=True):
            line = line.replace(secret, "***") if len(secret) >= _SHORTEST else line
        return printable_log(line)


SecretsFor = Callable[[Iterable[str] | None], BuildSecrets]
"""Returns the secrets of a build that fetches these addresses; None: a Dockerfile that may fetch anything."""


def no_secrets(addresses: Iterable[str] | None) -> BuildSecrets:
    """Return nothing that is secret, whatever a build fetches."""
    del addresses
    return BuildSecrets()
