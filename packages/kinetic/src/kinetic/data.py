"""`Data`: a file, a folder or a URI that a job gets as a path."""

from __future__ import annotations

import errno
import os
import stat
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from kinetic.errors import DataError, DataNotFoundError, DataNotLocalError, InvalidRequestError
from kinetic_payload.data import references
from kinetic_payload.data.references import DataKind, DataRef

_SCHEME: Final = "://"
_ABSENT: Final = frozenset({errno.ENOENT, errno.ENOTDIR, errno.ELOOP})


if TYPE_CHECKING:
    from typing import Self

    # What the function gets is a `str`: type checkers must accept a `Data` for each parameter that takes one.
    _Path = str
else:
    _Path = object


class Data(_Path):
    """Data that the function gets as a path.

    Pass it as an argument, anywhere inside one, or in `volumes`.

    *path* is a local file or folder, `gs://bucket/object`, `gs://bucket/folder/` (the slash at the end
    makes it a folder) or `hf://[organisation/]name[?config_name=…&split=…&revision=…]`. With *fuse*
    the data is mounted and read on demand instead of copied. *hf_trust_remote_code* lets a data set
    of the Hub run its own loading code.

    Creating a `Data` reads nothing; inside a job, it does not resolve *path* either.

    Raises:
        InvalidRequestError: *path* is not valid, or the options contradict each other.
    """

    __slots__ = ("_fuse", "_given", "_path", "_trusts")

    if TYPE_CHECKING:

        def __new__(  # noqa: D102 - for type checkers
            cls, path: str, fuse: bool = False, hf_trust_remote_code: bool = False
        ) -> Self: ...

    def __init__(self, path: str, fuse: bool = False, hf_trust_remote_code: bool = False) -> None:
        given = _text(path)
        self._given = given
        self._fuse = bool(fuse)
        self._trusts = bool(hf_trust_remote_code)
        self._path = given
        if references.inside_job():
            return
        self._path = _resolve(given)
        if self._trusts and not self.is_hf:
            raise InvalidRequestError(
                f"hf_trust_remote_code is for hf:// data only; got {given!r}.",
                hint="Leave hf_trust_remote_code out.",
            )
        if self._fuse and self.is_hf:
            raise InvalidRequestError(
                f"{given!r} cannot be mounted: a data set of the Hub is downloaded.",
                hint="Leave fuse=True out.",
            )
        if self._fuse and "," in self._path:
            raise InvalidRequestError(
                f"{given!r} cannot be mounted: mount options are split at every comma.",
                hint="Leave fuse=True out, or use a path without commas.",
            )

    @property
    def path(self) -> str:
        """The absolute local path, or the URI.

        Raises:
            DataError: This is a job, in which a local path of the submitting machine has no meaning.
        """
        return self.__fspath__() if self.is_local else self._path

    @property
    def fuse(self) -> bool:
        """Whether it is mounted and read on demand instead of copied."""
        return self._fuse

    @property
    def hf_trust_remote_code(self) -> bool:
        """Whether a data set of the Hub may run its own loading code."""
        return self._trusts

    @property
    def is_gcs(self) -> bool:
        """Whether it is in a bucket."""
        return self._path.startswith("gs://")

    @property
    def is_hf(self) -> bool:
        """Whether it is a data set of the Hugging Face Hub."""
        return self._path.startswith("hf://")

    @property
    def is_local(self) -> bool:
        """Whether it is on the machine that submits."""
        return not (self.is_gcs or self.is_hf)

    @property
    def is_dir(self) -> bool:
        """Whether it is a folder.

        A local path is looked up on disk. A `gs://` URI is a folder if it ends with a slash,
        `hf://` data always is.
        """
        if self.is_gcs:
            return self._path.endswith("/")
        return self.is_hf or os.path.isdir(self.path)  # noqa: PTH112 - raises nothing

    def content_hash(self) -> str:
        """Return the SHA-256 of all file contents in deterministic order.

        Each file is hashed by itself (relative path and contents), on all cores; the digests are
        combined in sorted order, behind `dir:` or `file:`. Links to folders are not followed, links
        to files are read.

        Raises:
            DataNotFoundError: It does not exist.
            DataNotLocalError: It has a URI.
            DataError: It cannot be read.
        """
        if not self.is_local:
            raise DataNotLocalError(
                f"{self!r} is not on this machine, so its contents cannot be hashed here.",
                hint="Only local data has a content_hash().",
            )
        self.check()
        from kinetic.settings.home import stat_cache
        from kinetic.settings.settings import Settings
        from kinetic_payload.project.hashing import content_hash

        path, cache = Path(self.path), None
        with suppress(InvalidRequestError):  # Hashing works without a cache.
            cache = stat_cache(Path(Settings.from_environment().home.value), path)
        return content_hash(path, cache)

    def check(self) -> None:
        """Check that local data exists and can be read; called when a job is submitted.

        Raises:
            DataNotFoundError: It does not exist; the hint has similar names.
            DataError: It cannot be read.
            ConfigurationError: A setting is wrong.
        """
        if not self.is_local:
            return
        path = Path(self.path)
        try:
            mode = path.stat().st_mode
        except OSError as error:
            if error.errno in _ABSENT:
                raise _missing_error(self, path) from error
            raise DataError(
                f"{self!r} cannot be read: {error.strerror}.",
                hint="Check the path, and your permissions for the folders above it.",
            ) from error
        if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
            raise DataError(
                f"{self!r} is neither a file nor a folder.",
                hint="Sockets, pipes and devices cannot be shipped.",
            )
        if not os.access(path, os.R_OK | os.X_OK if stat.S_ISDIR(mode) else os.R_OK):
            raise DataError(
                f"{self!r} cannot be read: permission denied.",
                hint=f"Allow yourself to read it: chmod -R u+rX {path}",
            )

    def __fspath__(self) -> str:
        if references.inside_job():
            raise DataError(
                f"{self!r} was not shipped with this call, so it has no path here.",
                hint="Pass it as an argument or in volumes, and use the path that the function gets.",
            )
        if not self.is_local:
            raise DataError(
                f"{self!r} has no path on this machine.",
                hint="Pass it to a function that Kinetic runs; there it is a path.",
            )
        return self._path

    def __repr__(self) -> str:
        options = ", fuse=True" * self._fuse + ", hf_trust_remote_code=True" * self._trusts
        return f"{type(self).__name__}({self._given!r}{options})"

    def __copy__(self) -> Data:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> Data:
        # User code may copy it while a call is pickled: it must remain a `Data`.
        return self

    def __reduce_ex__(self, protocol: Any) -> Any:
        collect = references.collecting.get()
        if collect is not None:
            return references.data_path, (collect(self),)
        return super().__reduce_ex__(protocol)


def to_ref(
    data: Data,
    key: str,
    *,
    digest: str | None = None,
    mount: str | None = None,
    in_place: bool = False,
) -> DataRef:
    """Return the reference that replaces *data* in a payload; *digest* is that of its uploaded tree.

    With *in_place* it was not uploaded: the worker is this machine and reads it in place.
    """
    kind: DataKind = "gcs" if data.is_gcs else "hf" if data.is_hf else "local"
    return DataRef(
        key=key,
        kind=kind,
        source=data.path if kind != "local" else data._given,
        is_dir=data.is_dir,
        name=_name(data),
        digest=digest,
        mount=mount,
        fuse=data.fuse,
        local_path=data.path if in_place else None,
        trust_remote_code=data.hf_trust_remote_code,
    )


def _name(data: Data) -> str:
    if data.is_hf:
        return data.path.removeprefix("hf://").partition("?")[0].rpartition("/")[2]
    if data.is_gcs:
        return data.path.rstrip("/").rpartition("/")[2]
    name = os.path.basename(data.path)  # noqa: PTH119 - Path would hide a name of '..'
    return name if name not in {"", ".", ".."} else Path(data.path).resolve().name or "data"


def _text(path: object) -> str:
    if isinstance(path, Data):
        return path._given
    if isinstance(path, os.PathLike):
        path = os.fspath(path)
    if not isinstance(path, str) or not path or path.isspace() or "\0" in path:
        raise InvalidRequestError(
            f"Data needs a path or a URI, not {path!r}.",
            hint="Write Data('./folder/'), Data('gs://bucket/object') or Data('hf://name'); Data('.') is the "
            "working directory.",
        )
    return path


def _resolve(given: str) -> str:
    from kinetic_payload.data.sources import parse_gcs, parse_hf

    if given.startswith("gs://"):
        parse_gcs(given)
        return given
    if given.startswith("hf://"):
        parse_hf(given)
        return given
    scheme, found, _ = given.partition(_SCHEME)
    if found and scheme.replace("+", "").isalnum():
        raise InvalidRequestError(
            f"{given!r}: Data does not support {scheme}://.",
            hint="It takes local paths, gs:// and hf://.",
        )
    try:
        return str(Path(given).expanduser().absolute())
    except (RuntimeError, OSError) as error:  # no such user; the working directory is gone
        raise InvalidRequestError(
            f"{given!r} cannot be made an absolute path: {error}.", hint="Write an absolute path."
        ) from error


def _missing_error(data: Data, path: Path) -> DataNotFoundError:
    """Return an error that names the missing part of *path*, and similar names."""
    from difflib import get_close_matches

    missing = partial(DataNotFoundError, filename=str(path))
    parent = path.parent
    while not os.path.exists(parent) and parent != parent.parent:  # noqa: PTH110 - raises nothing
        path, parent = parent, parent.parent
    if path.is_symlink():
        return missing(
            f"{data!r} does not exist: {path} is a broken link.",
            hint=f"It points to {str(path.readlink())!r}.",
        )
    message = f"{data!r} does not exist: there is no {path.name!r} in {parent}."
    try:
        names = sorted(os.listdir(parent))  # noqa: PTH208 - names are what is compared
    except OSError:
        return missing(message, hint="Check the path.")
    close = get_close_matches(path.name, names, n=3, cutoff=0.5)
    if close:
        meant = " or ".join(repr(str(parent / name)) for name in close)
        return missing(message, hint=f"Did you mean {meant}?")
    return missing(
        message,
        hint="Relative paths begin at the working directory of the process that made the Data.",
    )
