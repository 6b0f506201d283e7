"""Record what the function's processes use, as long as they run: processors, memory, GPUs and TPUs."""

from __future__ import annotations

import ctypes
import os
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from time import monotonic, time
from typing import Any, Final

from kinetic_payload.errors import KineticError
from kinetic_payload.processes import tree_of, usage_of
from kinetic_payload.records.encode import encode
from kinetic_payload.records.usage import Chip, Sample, Usage
from kinetic_payload.stores.store import Store
from kinetic_runner.parent.memory import memory_limit

_FIRST_SECONDS: Final = 2.0
"""Seconds between two samples at first."""
_MOST: Final = 240
"""Samples. If there are more, each two become one, and the next ones are twice as far apart."""
_FIRST_WRITE: Final = 10.0
"""Seconds before anything is written: shorter functions leave nothing to look at."""
_WRITES: Final = 30.0
"""Seconds between two later writes."""
_LAST_SECONDS: Final = 2.0


class UsageRecorder:
    """Samples the process *root* with all its descendants, in a thread; writes the samples to *name* in *store*.

    A sample or an object that fails is left out: nothing of the job depends on it.
    """

    def __init__(
        self,
        store: Store,
        name: str,
        root: int,
        *,
        gpus: Callable[[], Sequence[Chip]] | None = None,
        seconds: float = _FIRST_SECONDS,
        most: int = _MOST,
        writes: float = _WRITES,
    ) -> None:
        self.chips: Sequence[Chip] = ()
        """The chips of a TPU, which only the function's process can ask."""
        self._store = store
        self._name = name
        self._root = root
        self._gpus = gpus
        self._seconds = seconds
        self._most = most
        self._writes = writes
        self._samples: list[Sample] = []
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="usage", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Write the last samples, unless the store takes long."""
        self._over.set()
        self._thread.join(_LAST_SECONDS)

    def _run(self) -> None:
        began = last = monotonic()
        next_write = began + min(_FIRST_WRITE, self._writes)
        used, gpus = 0.0, self._gpus
        while not self._over.wait(self._seconds):
            gpus = gpus or gpus_of()
            seconds, memory = usage_of(tree_of(self._root))
            now = monotonic()
            # A process that ended took its time with it, if its parent did not wait for it.
            cpu = max(0.0, seconds - used) / (now - last)
            used, last = seconds, now
            chips = tuple(gpus() or self.chips)
            self._samples.append(
                Sample(at=round(time(), 3), cpu=round(cpu, 3), memory=memory, chips=chips)
            )
            if len(self._samples) > self._most:
                pairs = zip(self._samples[::2], self._samples[1::2], strict=False)
                self._samples = [_joined(*pair) for pair in pairs]
                self._seconds *= 2
            if now >= next_write:
                self._write()
                next_write = now + max(self._writes, self._seconds)
        if monotonic() >= began + _FIRST_WRITE:
            self._write()

    def _write(self) -> None:
        cpus = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
        usage = Usage(cpus=cpus or 1, memory_limit=memory_limit(), samples=tuple(self._samples))
        with suppress(KineticError, OSError):
            self._store.write(self._name, encode(usage))


def _joined(first: Sample, second: Sample) -> Sample:
    """Return one sample for two: the mean of what was busy, the most of what was held."""
    chips = tuple(
        replace(b, busy=round((a.busy + b.busy) / 2, 3), memory=max(a.memory, b.memory))
        for a, b in zip(first.chips, second.chips, strict=False)
    )
    cpu = round((first.cpu + second.cpu) / 2, 3)
    return replace(second, cpu=cpu, memory=max(first.memory, second.memory), chips=chips)


def chips_in(values: Any) -> list[Chip]:
    """Return the chips in a message of the child: triples of share, bytes in use and bytes in all."""
    try:
        return [
            Chip(busy=float(busy), memory=int(used), memory_total=int(total))
            for busy, used, total in values
        ]
    except (TypeError, ValueError):
        return []  # User code may write to this pipe, too.


class _Rates(ctypes.Structure):
    _fields_ = (("gpu", ctypes.c_uint), ("memory", ctypes.c_uint))


class _Memory(ctypes.Structure):
    _fields_ = (
        ("total", ctypes.c_ulonglong),
        ("free", ctypes.c_ulonglong),
        ("used", ctypes.c_ulonglong),
    )


def gpus_of(library: str = "libnvidia-ml.so.1") -> Callable[[], Sequence[Chip]]:
    """Return what reads the GPUs of this machine through NVML, the library that every NVIDIA driver has.

    https://docs.nvidia.com/deploy/nvml-api/group__nvmlDeviceQueries.html
    """
    try:
        nvml = ctypes.CDLL(library)
        count = ctypes.c_uint()
        if nvml.nvmlInit_v2() or nvml.nvmlDeviceGetCount_v2(ctypes.byref(count)):
            return tuple
    except (OSError, AttributeError):
        return tuple

    def read() -> list[Chip]:
        found = []
        for index in range(count.value):
            device, rates, memory = ctypes.c_void_p(), _Rates(), _Memory()
            failed = (
                nvml.nvmlDeviceGetHandleByIndex_v2(index, ctypes.byref(device))
                or nvml.nvmlDeviceGetUtilizationRates(device, ctypes.byref(rates))
                or nvml.nvmlDeviceGetMemoryInfo(device, ctypes.byref(memory))
            )
            if not failed:
                found.append(
                    Chip(busy=rates.gpu / 100, memory=memory.used, memory_total=memory.total)
                )
        return found

    return read
