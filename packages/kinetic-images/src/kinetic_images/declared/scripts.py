"""Metadata of scripts: the block `# /// script` (PEP 723)."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from kinetic_images.errors import DependencyError

# https://packaging.python.org/en/latest/specifications/inline-script-metadata/
_BLOCK: Final = re.compile(
    r"(?m)^# /// (?P<type>[a-zA-Z0-9-]+)$\s(?P<content>(^#(| .*)$\s)+)^# ///$"
)


def script_metadata(path: Path) -> str | None:
    """Return the metadata in the script *path* as TOML, with the script's line numbers.

    Return None if it has none, or cannot be read.

    Raises:
        DependencyError: There are several such blocks.
    """
    try:
        text = path.read_bytes().decode(errors="replace").replace("\r\n", "\n")
    except OSError:
        return None
    blocks = [found for found in _BLOCK.finditer(text) if found["type"] == "script"]
    if len(blocks) > 1:
        raise DependencyError(
            f"{path} has {len(blocks)} blocks `# /// script`.", hint="Write all metadata into one."
        )
    for found in blocks:
        before = text[: found.start("content")].count("\n")
        lines = (line.removeprefix("#").removeprefix(" ") for line in found["content"].splitlines())
        return "\n" * before + "\n".join(lines)
    return None
