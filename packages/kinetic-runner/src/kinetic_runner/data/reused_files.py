"""Files that an earlier attempt left in the workspace: reused where they are unchanged."""

from __future__ import annotations

import hashlib
import os
import stat
from contextlib import suppress
from pathlib import Path

from kinetic_payload.data.references import DataRef
from kinetic_payload.errors import DataError
from kinetic_payload.files.private import make_new_folder

_NAME = ".earlier"


class EarlierFiles:
    """What earlier attempts left, moved to a folder of the workspace *root*.

    User code could write to all of these files, so none of them is trusted: files and data are compared with
    the digests that the job names. The extracted project is never reused. Its archive is reused, because
    extracting it verifies it.
    """

    def __init__(self, root: Path) -> None:
        self._root = root
        self._folder = root / _NAME

    def put_aside(self) -> None:
        """Move everything in the workspace to the folder of earlier files."""
        left = [path for path in self._root.iterdir() if path != self._folder]
        if left:
            self.remove()
            if self._folder.exists():  # Some of it could not be removed: move it as well.
                unremoved = self._root / f"{_NAME}.{os.urandom(4).hex()}"
                self._folder.rename(unremoved)
                left.append(unremoved)
            make_new_folder(self._folder)
            for path in left:
                _make_accessible(str(path))
                path.rename(self._folder / path.name)

    def take_file(self, path: Path, *, digest: str | None = None) -> bool:
        """Move the earlier file back to *path* if it exists with that SHA-256; return whether it does."""
        found = self._earlier_path(path)
        if found.is_symlink() or not found.is_file():
            return False
        try:
            if digest is not None:
                with found.open("rb") as stream:
                    if hashlib.file_digest(stream, "sha256").hexdigest() != digest:
                        return False
            found.rename(path)
        except OSError:  # The function may have made it unreadable.
            return False
        return True

    def take_data(self, ref: DataRef, path: Path, *, was_at: Path) -> bool:
        """Move the earlier download of *ref* to *path* if it is unchanged; return whether it was."""
        if ref.kind != "local" or ref.digest is None or self._root not in was_at.parents:
            return False
        from kinetic_payload.project.snapshot import tree_of

        found = self._earlier_path(was_at)
        try:
            if found.is_symlink() or not found.exists():
                return False
            tree = tree_of(found)
            if tree.left_out or tree.digest != ref.digest:
                return False
            found.rename(path)
        except (OSError, DataError):
            return False  # User code changed it.
        return True

    def discard(self, path: Path) -> None:
        """Remove the earlier file or folder that was at *path*, as far as possible, to free its space."""
        import shutil

        shutil.rmtree(self._earlier_path(path), ignore_errors=True)

    def remove(self) -> None:
        """Remove what was not reused; what cannot be removed stays."""
        import shutil

        shutil.rmtree(self._folder, ignore_errors=True)
        if self._folder.exists():  # Read-only folders, made by user code.
            for folder, names, _ in os.walk(self._folder):
                for name in names:
                    _make_accessible(f"{folder}/{name}")
            shutil.rmtree(self._folder, ignore_errors=True)

    def _earlier_path(self, path: Path) -> Path:
        return self._folder / path.relative_to(self._root)


def _make_accessible(path: str) -> None:
    """Make *path* readable and removable, if it is a folder of this user."""
    with suppress(OSError):
        if stat.S_ISDIR(os.lstat(path).st_mode):
            os.chmod(path, 0o700)  # noqa: PTH101
