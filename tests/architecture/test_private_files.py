"""What Kinetic keeps is made by `kinetic_payload.files.private`, or it has the modes of a umask."""

from __future__ import annotations

import ast
from pathlib import Path

ROOT = Path(__file__).parents[2]

MAKING = {"mkdir", "makedirs", "mkfifo", "mkstemp", "mkdtemp", "touch", "write_text", "write_bytes"}

NOT_OURS_TO_KEEP = {
    "kinetic_payload/files/atomic.py": "`NewFile`, which the user named",
    "kinetic/backends/local/launch.py": "an output folder that the user named",
    "kinetic/backends/local/limits.py": "control groups, which the kernel keeps",
    "kinetic_payload/data/bucket.py": "`Data`, for the user's function",
    "kinetic/jobs/debugging.py": "`.vscode/launch.json` of the user's project",
    "kinetic_payload/archives/extract.py": "the project and `Data`, with the modes that they had",
    "kinetic_payload/files/private.py": "",
    "kinetic_runner/data/huggingface.py": "the library's own cache",
    "kinetic_runner/data/inputs.py": "empty mount points and stages of `Data`",
    "kinetic_runner/data/mounts.py": "mount points, and files of the kernel",
    "kinetic_images/builders/dockerfile/install.py": "the files of an image, inside its build",
    "kinetic_runner/child/pipeline.py": "folders in which the user's function works",
}
"""Modules that make files in another way, and which."""


def makes(call: ast.Call) -> bool:
    """Return whether *call* makes a file or folder whose mode depends on the umask."""
    name = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
    if name in MAKING:
        return True
    given = [ast.unparse(one) for one in (*call.args, *(word.value for word in call.keywords))]
    if name != "open" or given[:1] in (["fd"], ["self.fd"], ["descriptor"]):
        return False  # A descriptor: its file is there.
    return any(
        "O_CREAT" in text or text in ("'wb'", "'w'", "'ab'", "'a'", "'xb'", "'x'") for text in given
    )


def test_what_is_kept_is_made_in_one_place() -> None:
    found = {
        str(path.relative_to(source))
        for source in ROOT.glob("packages/*/src")
        for path in source.rglob("*.py")
        if "testing" not in path.with_suffix("").parts
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call) and makes(node)
    }

    assert sorted(found) == sorted(NOT_OURS_TO_KEEP), "use kinetic_payload.files.private"
