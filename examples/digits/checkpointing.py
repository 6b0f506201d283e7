"""Checkpoints of several files, which count only when all of their files are there.

They are stored in `KINETIC_OUTPUT_DIR`, which is the same in every attempt and on every host of a job.
"""

from __future__ import annotations

import io
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kinetic_payload.stores import open_store
from kinetic_payload.stores.store import Store, parse_location

if TYPE_CHECKING:
    import numpy as np


def outputs() -> Store:
    """Open the folder for the job's outputs: a folder or `gs://…`."""
    return open_store(parse_location(os.environ["KINETIC_OUTPUT_DIR"]))


@dataclass(frozen=True)
class Checkpoints:
    """The checkpoints of one run, by the number of epochs that it had finished."""

    store: Store
    run: str

    def save(self, epoch: int, arrays: Mapping[str, np.ndarray]) -> None:
        """Write a file for each array; then write the file that marks the checkpoint as complete."""
        import numpy as np

        for name, array in arrays.items():
            file = io.BytesIO()
            np.save(file, array)
            self.store.write(f"{self._folder(epoch)}/{name}.npy", file.getvalue())
        self.store.write(f"{self._folder(epoch)}/complete", b"")

    def newest(self) -> int:
        """Return the epoch of the newest complete checkpoint; 0: there is none."""
        names = [info.name for info in self.store.list(f"{self.run}/")]
        complete = [name for name in names if name.endswith("/complete")]
        return int(complete[-1].split("/")[-2]) if complete else 0

    def load(self, epoch: int) -> dict[str, np.ndarray]:
        """Return the arrays of a complete checkpoint."""
        import numpy as np

        folder = f"{self._folder(epoch)}/"
        return {
            info.name.removeprefix(folder).removesuffix(".npy"): np.load(
                io.BytesIO(self.store.read(info.name))
            )
            for info in self.store.list(folder)
            if info.name.endswith(".npy")
        }

    def _folder(self, epoch: int) -> str:
        return f"{self.run}/{epoch:06d}"
