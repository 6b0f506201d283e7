"""Small wheels, valid unless a test asks for something else."""

from __future__ import annotations

import base64
import csv
import hashlib
import io
import tarfile
import zipfile
from collections.abc import Mapping
from pathlib import Path

from kinetic_images.lock.packages import LockedPackage

WHEEL = "Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: true\nTag: py3-none-any\n"


def make_wheel(
    folder: Path,
    files: Mapping[str, bytes | str] | None = None,
    *,
    name: str = "demo",
    version: str = "1.0",
    entry_points: str = "",
    wheel: str | None = WHEEL,
    modes: Mapping[str, int] | None = None,
    record: str | None = None,
    extra: Mapping[str, bytes] | None = None,
) -> Path:
    """Write a wheel with *files* (`{info}` and `{data}` stand for its folders) and return its path.

    *modes* are whole modes of Unix, such as `0o100755`. *extra* files are not in its RECORD.
    """
    stem = f"{name}-{version}"
    info = f"{stem}.dist-info"
    given = {f"{name}/__init__.py": f"VERSION = {version!r}\n"} if files is None else files
    contents = {
        path.format(info=info, data=f"{stem}.data"): text.encode()
        if isinstance(text, str)
        else text
        for path, text in given.items()
    }
    contents.setdefault(
        f"{info}/METADATA",
        f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n".encode(),
    )
    if wheel is not None:
        contents[f"{info}/WHEEL"] = wheel.encode()
    if entry_points:
        contents[f"{info}/entry_points.txt"] = entry_points.encode()
    contents[f"{info}/RECORD"] = (_record(contents, info) if record is None else record).encode()
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{stem}-py3-none-any.whl"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for file, data in {**contents, **(extra or {})}.items():
            entry = zipfile.ZipInfo(file, (2020, 1, 1, 0, 0, 0))
            entry.create_system = 3
            mode = next((each for key, each in (modes or {}).items() if key in file), 0o100644)
            entry.external_attr = mode << 16
            entry.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(entry, data)
    return path


def small_jax(project: Path) -> str:
    """Make a wheel in the place of JAX, which is large, in *project*; return the lines for its requirements."""
    make_wheel(project / "wheels", {"jax.py": ""}, name="jax")
    return "--find-links wheels\njax==1.0  # kn:keep\n"


def locked(path: Path, address: str | None = None) -> LockedPackage:
    """Return the wheel *path* as a lock names it; by default, it is used in place."""
    name, version = path.name.split("-")[:2]
    return LockedPackage(
        name=name,
        version=version,
        file=path.name,
        sha256=hashlib.sha256(path.read_bytes()).hexdigest(),
        address=address or path.as_uri(),
        size=path.stat().st_size,
    )


def extracted(layer: bytes, folder: Path) -> dict[str, tarfile.TarInfo]:
    """Extract a layer into *folder*, and return its members."""
    with tarfile.open(fileobj=io.BytesIO(layer), mode="r:gz") as archive:
        members = {member.name: member for member in archive}
        archive.extractall(folder, filter="tar")
    return members


def _record(contents: Mapping[str, bytes], info: str) -> str:
    text = io.StringIO()
    rows = csv.writer(text, lineterminator="\n")
    for path, data in contents.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
        rows.writerow([path, f"sha256={digest}", len(data)])
    rows.writerow([f"{info}/RECORD", "", ""])
    return text.getvalue()
