"""Objects of a bucket server, over HTTP, as the service itself reads and writes them."""

from __future__ import annotations

from urllib.parse import quote

import urllib3


class BucketObjects:
    """Reads and writes objects of the bucket server at *endpoint* (`http://HOST:PORT`)."""

    def __init__(self, endpoint: str) -> None:
        self._endpoint = endpoint
        self._http = urllib3.PoolManager(retries=urllib3.Retry(3, backoff_factor=0.1))

    def read(self, bucket: str, name: str) -> bytes | None:
        """Return the bytes of an object, or None if it cannot be read."""
        path = f"/storage/v1/b/{quote(bucket, safe='')}/o/{quote(name, safe='')}?alt=media"
        found = self._http.request("GET", self._endpoint + path)
        return found.data if found.status == 200 else None

    def write(self, bucket: str, name: str, data: bytes) -> bool:
        """Write an object; return whether this succeeded."""
        path = f"/upload/storage/v1/b/{quote(bucket, safe='')}/o?uploadType=media&name={quote(name, safe='')}"
        headers = {"Content-Type": "text/plain; charset=utf-8"}
        done = self._http.request("POST", self._endpoint + path, body=data, headers=headers)
        return done.status == 200
