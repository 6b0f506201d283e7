"""Add the files outside of `docs/` that its pages link to, such as the README, to the site (a hook of mkdocs)."""

from __future__ import annotations

import os
import posixpath
import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parent.parent
PLACES = {"README.md": "index.md"} | {
    path.relative_to(ROOT).as_posix(): path.relative_to(ROOT).as_posix().lower()
    for pattern in ("[!R]*.md", "LICENSE", "llms.txt", "packages/*/*.md", "examples/**/*")
    for path in ROOT.glob(pattern)
    if path.is_file() and "__pycache__" not in path.parts
}
"""The files, by their path in the repository, and their places in the site."""
LINK = re.compile(r"(?<=\]\()(?![a-z]+:|#)([^)#\s]+)")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the files to the site."""
    for path, place in PLACES.items():
        files.append(File.generated(config, place, abs_src_path=os.fspath(ROOT / path)))
    return files


def on_page_markdown(markdown: str, page: Page, **_: object) -> str:
    """Let the links of a page lead to the places in the site; the word `runnable` is for tests."""
    here = page.file.src_uri
    paths = {place: path for path, place in PLACES.items()}
    origin = posixpath.dirname(paths.get(here, f"docs/{here}"))

    def moved(link: re.Match[str]) -> str:
        path = posixpath.normpath(posixpath.join(origin, link[1]))
        place = PLACES.get(path, path.removeprefix("docs/"))
        return posixpath.relpath(place, posixpath.dirname(here) or ".")

    return LINK.sub(moved, markdown.replace("```python runnable", "```python"))
