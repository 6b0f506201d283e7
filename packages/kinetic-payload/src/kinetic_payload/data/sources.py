"""Sources of `Data` that is not local: `gs://` and `hf://`, parsed."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from kinetic_payload.errors import InvalidRequestError
from kinetic_payload.stores.store import is_bucket_name

_HF_PART: Final = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,94}[A-Za-z0-9])?")
_HF_KEYS: Final = ("config_name", "split", "revision")


@dataclass(frozen=True)
class GcsSource:
    """An object of a bucket, or all objects below a prefix."""

    bucket: str
    name: str
    """Of the object; a prefix is empty or ends in `/`."""

    @property
    def is_dir(self) -> bool:
        """Whether this is a prefix."""
        return not self.name or self.name.endswith("/")


@dataclass(frozen=True)
class HuggingFaceSource:
    """A data set of the Hugging Face Hub."""

    repo: str
    """`name`, or `organisation/name`."""
    config_name: str | None = None
    split: str | None = None
    revision: str | None = None


def parse_gcs(uri: str) -> GcsSource:
    """Parse `gs://bucket/object` or `gs://bucket/prefix/`.

    Raises:
        InvalidRequestError: It is not one of these.
    """
    bucket, slash, name = uri.removeprefix("gs://").partition("/")
    if not is_bucket_name(bucket):
        raise InvalidRequestError(
            f"{uri!r} names no bucket: {bucket!r} is not a valid bucket name.",
            hint="Write gs://BUCKET/OBJECT, or gs://BUCKET/FOLDER/ with a slash at the end. A bucket's "
            "name has at least 3 characters: lower-case letters, digits, '-', '_' and '.'.",
        )
    if not slash:
        raise InvalidRequestError(
            f"{uri!r} names a bucket, but no object in it.",
            hint=f"For the whole bucket write {uri}/ with a slash at the end.",
        )
    if "\n" in name or "\r" in name or any(part in {".", ".."} for part in name.split("/")):
        raise InvalidRequestError(
            f"{uri!r} is not the name of an object.",
            hint="Names of objects have no line breaks and no '.' or '..' between slashes.",
        )
    return GcsSource(bucket, name)


def parse_hf(uri: str) -> HuggingFaceSource:
    """Parse `hf://[organisation/]name[?config_name=…&split=…&revision=…]`.

    Raises:
        InvalidRequestError: It does not have this form.
    """
    from urllib.parse import parse_qsl

    repo, _, query = uri.removeprefix("hf://").partition("?")
    parts = repo.split("/")
    if len(parts) > 2 or not all(_HF_PART.fullmatch(part) for part in parts):
        raise InvalidRequestError(
            f"{uri!r} names no data set: {repo!r} is not [ORGANISATION/]NAME.",
            hint="Write hf://NAME or hf://ORGANISATION/NAME; to choose a split, add ?split=train.",
        )
    try:
        # A plus joins splits: it is not a space, as it would be in a form.
        written = query.replace("+", "%2B")
        pairs = parse_qsl(written, keep_blank_values=True, strict_parsing=bool(query))
    except ValueError as error:
        raise InvalidRequestError(
            f"{uri!r} ends in a query that cannot be read: {error}.",
            hint=f"Write ?KEY=VALUE&KEY=VALUE; the keys are {', '.join(_HF_KEYS)}.",
        ) from error
    found: dict[str, str] = {}
    for key, value in pairs:
        if key not in _HF_KEYS:
            from difflib import get_close_matches

            close = get_close_matches(key, _HF_KEYS, n=1, cutoff=0.4)
            meant = f"Did you mean {close[0]!r}? " if close else ""
            raise InvalidRequestError(
                f"{uri!r} has the unknown option {key!r}.",
                hint=f"{meant}The options are {', '.join(_HF_KEYS)}.",
            )
        if key in found:
            raise InvalidRequestError(f"{uri!r} gives {key!r} twice.", hint="Give it once.")
        if not value:
            raise InvalidRequestError(
                f"{uri!r} gives no value for {key!r}.", hint=f"Write {key}=VALUE, or leave it out."
            )
        found[key] = value
    return HuggingFaceSource(repo, **found)
