"""Images for the test bed, made without docker. Benchmarks use them as well; they import this file by its path."""

from __future__ import annotations

import hashlib
import importlib.metadata
import io
import json
import subprocess
import sys
import tarfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import urllib3
from locks import locked

REQUIREMENTS = tuple(
    f"{name}=={importlib.metadata.version(name)}"
    for name in ("cloudpickle", "debugpy", "google-cloud-storage")
)
_MANIFEST = "application/vnd.oci.image.manifest.v1+json"
_BASE = "base/python"
_FOLDER = "usr/local/lib/python3.11/dist-packages"


class Registry:
    """The test bed's registry, over HTTP."""

    def __init__(self, address: str) -> None:
        self.address = address
        self._http = urllib3.PoolManager()

    def ask(self, method: str, path: str, **options: Any) -> urllib3.BaseHTTPResponse:
        url = path if path.startswith("http") else f"http://{self.address}/v2/{path}"
        return self._http.request(method, url, **options)

    def has(self, repository: str, tag: str) -> bool:
        found = self.ask("HEAD", f"{repository}/manifests/{tag}", headers={"Accept": _MANIFEST})
        return found.status == 200

    def manifest(self, repository: str, tag: str) -> Any:
        found = self.ask("GET", f"{repository}/manifests/{tag}", headers={"Accept": _MANIFEST})
        return json.loads(found.data)

    def push(self, repository: str, data: bytes | memoryview) -> str:
        digest = f"sha256:{hashlib.sha256(data).hexdigest()}"
        place = self.ask("POST", f"{repository}/blobs/uploads/").headers["Location"]
        mark = "&" if "?" in place else "?"
        stored = self.ask("PUT", f"{place}{mark}digest={digest}", body=data)
        assert stored.status == 201, stored.data
        return digest

    def base(self) -> tuple[Any, Any]:
        """Return the manifest and the config of the test bed's Python image."""
        manifest = self.manifest(_BASE, "3.11")
        return manifest, json.loads(
            self.ask("GET", f"{_BASE}/blobs/{manifest['config']['digest']}").data
        )

    def store(
        self, repository: str, tag: str, base: Any, config: Any, layers: Sequence[Any] = ()
    ) -> str:
        """Store the image with *config*, the layers of the manifest *base* and *layers*; return its address."""
        for each in base["layers"]:
            path = f"{repository}/blobs/uploads/?mount={each['digest']}&from={_BASE}"
            assert self.ask("POST", path).status == 201
        data = json.dumps(config).encode()
        described = {
            **base["config"],
            "digest": self.push(repository, data),
            "size": len(data),
        }
        manifest = {**base, "config": described, "layers": [*base["layers"], *layers]}
        stored = self.ask(
            "PUT",
            f"{repository}/manifests/{tag}",
            body=json.dumps(manifest).encode(),
            headers={"Content-Type": _MANIFEST},
        )
        assert stored.status == 201, stored.data
        return f"{self.address}/{repository}:{tag}"


def image_of(
    bed: Any, folder: Path, requirements: Sequence[str], *, imports: Sequence[str] = ()
) -> str:
    """Return the address of an image with Python and *requirements*, which are unpacked in *folder*.

    It is made without docker, once: its tag names its parts, and other processes wait while one makes it.
    With *imports*, only these modules and what they import have bytecode: large packages take 10 s to compile.
    """
    with locked(bed.folder, "images"):
        registry = Registry(bed.environment["KUBE_BED_REGISTRY"])
        base, config = registry.base()
        parts = json.dumps([base["config"]["digest"], requirements])
        tag = hashlib.sha256(parts.encode()).hexdigest()[:12]
        name = "kinetic-tests/custom"
        if registry.has(name, tag):
            return f"{registry.address}/{name}:{tag}"
        subprocess.run(
            [
                *(sys.executable, "-m", "uv", "pip", "install", "-q", "--target", folder),
                *("--python-version", "3.11", *requirements),
                *(() if imports else ("--compile-bytecode",)),
            ],
            check=True,
        )
        if imports:
            program = (
                f"import sys; sys.path.insert(0, {str(folder)!r}); import {', '.join(imports)}"
            )
            subprocess.run([sys.executable, "-I", "-c", program], check=True)
        unpacked = io.BytesIO()
        with tarfile.open(fileobj=unpacked, mode="w") as archive:
            archive.add(folder, _FOLDER)
        layer = registry.push(name, unpacked.getbuffer())
        config["rootfs"]["diff_ids"].append(layer)  # It is not compressed, which would take longer.
        config.pop("history", None)
        added = {
            "mediaType": "application/vnd.oci.image.layer.v1.tar",
            "digest": layer,
            "size": len(unpacked.getbuffer()),
        }
        return registry.store(name, tag, base, config, [added])
