"""The build context of a folder with a Dockerfile of the user."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from posixpath import normpath
from typing import Final

from kinetic_images.builders.dockerfile.context import BuildContext, ContextFile
from kinetic_images.errors import BuildInputError

_IGNORE: Final = ".dockerignore"


def folder_context(dockerfile: Path) -> BuildContext:
    """Return the files of the folder of *dockerfile*, without those that `.dockerignore` names.

    `NAME.dockerignore` beside a Dockerfile NAME takes precedence, as in docker. The Dockerfile and these files
    are always part of the context. Symbolic links stay links.

    Raises:
        BuildInputError: The Dockerfile does not exist, or a folder cannot be read.
    """
    path = dockerfile.absolute()
    if not path.is_file():
        raise BuildInputError(f"There is no Dockerfile {path}.", hint="Check its path.")
    root, name = path.parent, path.name
    own = path.with_name(f"{name}{_IGNORE}")
    lines = _lines(own) if own.is_file() else _lines(root / _IGNORE)
    is_ignored = ignored_by(lines)
    kept = (name, _IGNORE, f"{name}{_IGNORE}")
    files = {
        each: file
        for each, file in _files(root)
        if each in kept or not is_ignored(each.rstrip("/"))
    }
    return BuildContext({**files, name: ContextFile(path)}, name)


def _files(root: Path) -> Iterator[tuple[str, ContextFile]]:
    """Iterate over all files, links and folders below *root*, by their path; that of a folder ends with a slash."""

    def fail(error: OSError) -> None:
        raise BuildInputError(
            f"{error.filename}, a folder of the image build, cannot be read: {error.strerror}.",
            hint="Check its permissions, or name it in .dockerignore.",
        ) from error

    for folder, folders, files in os.walk(root, onerror=fail):
        for path in (Path(folder, name) for name in (*files, *folders)):
            name = path.relative_to(root).as_posix()
            if path.is_symlink():
                yield name, ContextFile(None, link=os.readlink(path))  # noqa: PTH115 - a text, not a path
            elif path.is_file():
                yield name, ContextFile(path, executable=bool(path.stat().st_mode & 0o100))
            elif path.is_dir():  # Not sockets and the like.
                yield f"{name}/", ContextFile(None)


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text(encoding="utf-8-sig").splitlines()
    except FileNotFoundError:
        return []
    except (OSError, UnicodeDecodeError) as error:
        raise BuildInputError(f"{path} cannot be read: {error}.", hint="Correct it.") from error


def ignored_by(lines: Iterable[str]) -> Callable[[str], bool]:
    """Return a function that tells whether a path, relative and with `/`, is left out by *lines*.

    A pattern that matches a folder matches everything in it. The last pattern that matches decides.
    """
    rules = []
    for line in lines:
        text = line.strip()
        if not text or line.startswith("#"):
            continue
        pattern = normpath(text.removeprefix("!").strip()).lstrip("/")
        if pattern in ("", "."):
            continue
        # A pattern of Go's `filepath.Match`, with `**` for any number of folders.
        special = {"**/": "(?:.*/)?", "**": "(?:.*/)?", "*": "[^/]*", "?": "[^/]"}
        tokens = _TOKEN.findall(pattern)
        parts = [
            special.get(token)
            or (token if token.startswith("[") and len(token) > 2 else re.escape(token[-1]))
            for token in tokens
        ]
        if tokens[-1] in ("**", "**/"):
            parts[-1] = ".*"
        rules.append((re.compile("".join(parts), re.DOTALL), text.startswith("!")))

    def is_ignored(path: str) -> bool:
        parts = path.split("/")
        places = ["/".join(parts[:count]) for count in range(1, len(parts) + 1)]
        ignored = False
        for expression, kept in rules:
            if any(map(expression.fullmatch, places)):
                ignored = not kept
        return ignored

    return is_ignored


_TOKEN = re.compile(r"\*\*/?|\*|\?|\[\^?[^\]]*\]|\\.|.", re.DOTALL)
