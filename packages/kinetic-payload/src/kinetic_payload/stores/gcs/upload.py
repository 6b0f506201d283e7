"""Uploads of small objects, in one request."""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterator, Mapping
from itertools import chain
from typing import TYPE_CHECKING, Any, Final

from kinetic_payload.stores.gcs.bucket import FIELDS, NONCE, Bucket, BucketObject, json_object
from kinetic_payload.stores.gcs.checksums import encoded
from kinetic_payload.stores.gcs.connection import Body
from kinetic_payload.stores.gcs.errors import NotFoundError, PreconditionError
from kinetic_payload.stores.gcs.translation import is_no_bucket, no_bucket
from kinetic_payload.stores.gcs.upload_content import Content, ContentChecksum

if TYPE_CHECKING:
    from kinetic_payload.digests import FileCheck
    from kinetic_payload.progress import Advance

SMALL: Final = 8 << 20
"""Larger objects are uploaded in sessions (`resumable_upload`)."""
_ONE_PIECE: Final = 64 << 10
"""Up to this size, head, content and tail are joined, which saves a packet."""


def upload_small(
    bucket: Bucket,
    name: str,
    content: Content,
    *,
    if_generation: int | None = None,
    metadata: Mapping[str, str] | None = None,
    progress: Advance | None = None,
    check: FileCheck | None = None,
) -> BucketObject:
    """Write *content* as *name* in one request."""
    nonce = secrets.token_hex(12) if if_generation is not None else ""
    described = {**(metadata or {}), **({NONCE: nonce} if nonce else {})}
    # With this checksum, the service refuses other bytes than those that were checked.
    resource: dict[str, Any] = {
        "name": name,
        "crc32c": encoded(ContentChecksum(content, check).whole()),
    }
    if described:
        resource["metadata"] = described
    boundary = secrets.token_hex(16)
    # The name is in the body, too; in the URL it appears in logs of requests.
    text = json.dumps(resource, ensure_ascii=False, separators=(",", ":"))
    head = (
        f"--{boundary}\r\nContent-Type: application/json; charset=UTF-8\r\n\r\n{text}"
        f"\r\n--{boundary}\r\nContent-Type: application/octet-stream\r\n\r\n"
    ).encode()
    tail = f"\r\n--{boundary}--\r\n".encode()
    length = len(head) + content.size + len(tail)
    headers = {
        "Content-Type": f"multipart/related; boundary={boundary}",
        "Content-Length": str(length),
    }

    furthest = 0

    def parts() -> Iterator[bytes]:
        nonlocal furthest
        sent = 0
        for part in chain((head,), ContentChecksum(content).blocks(0, content.size), (tail,)):
            yield part
            sent += len(part)
            furthest = max(furthest, sent)

    body: Body = b"".join(parts()) if length <= _ONE_PIECE else parts

    def act(failed: int) -> BucketObject:
        url = bucket.connection.url(
            bucket.name,
            "/o",
            api="/upload",
            uploadType="multipart",
            name=name,
            ifGenerationMatch=if_generation,
            fields=FIELDS,
        )
        try:
            return BucketObject.of(
                json_object(bucket.send("POST", url, headers=headers, body=body))
            )
        except PreconditionError:
            if failed and (written := bucket.own_write(name, nonce)):
                return written  # An earlier attempt wrote it, but its response was lost.
            raise
        except NotFoundError as error:
            raise not_written(bucket, error, if_generation) from error

    written = bucket.run(f"write {name!r}", act, progress=lambda: furthest)
    if progress is not None:
        progress(content.size)
    return written


def not_written(bucket: Bucket, error: NotFoundError, if_generation: int | None) -> Exception:
    """Return the error for a write that the service refused with 404."""
    if if_generation and not is_no_bucket(error):
        return PreconditionError(412, "The object does not exist any more.")
    return no_bucket(bucket.name)
