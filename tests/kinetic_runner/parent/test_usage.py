from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

from kinetic_payload.records.usage import Chip
from kinetic_payload.testing import MemoryStore
from kinetic_runner.child.tpu_usage import report_tpu
from kinetic_runner.parent.usage import UsageRecorder, chips_in, gpus_of

BUSY = """
import subprocess, sys
code = "held = bytearray(80_000_000)\\nwhile True: pass"
subprocess.run([sys.executable, "-c", code])
"""
NVML = """
typedef struct { unsigned gpu, memory; } rates;
typedef struct { unsigned long long total, free, used; } sizes;
int nvmlInit_v2(void) { return 0; }
int nvmlDeviceGetCount_v2(unsigned *n) { *n = 3; return 0; }
int nvmlDeviceGetHandleByIndex_v2(unsigned i, void **d) { *d = (void *)(long)(i + 1); return 0; }
int nvmlDeviceGetUtilizationRates(void *d, rates *r) { r->gpu = 40 * (long)d; return (long)d == 3; }
int nvmlDeviceGetMemoryInfo(void *d, sizes *s) { s->total = 80; s->used = (long)d; return 0; }
"""
LIBTPU = """
class Metric:
    def __init__(self, texts): self.texts = texts
    def data(self): return self.texts
def get_metric(name):
    return Metric({"duty_cycle_pct": ["93.5", "0.0"], "hbm_capacity_usage": ["1e9", "2e9"],
                   "hbm_capacity_total": ["16e9", "16e9"]}[name])
"""


def test_a_tree_of_processes_is_sampled_and_the_samples_stay_few() -> None:
    store = MemoryStore()
    chips = [Chip(busy=0.5, memory=1, memory_total=2)]

    def samples() -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = json.loads(store.read("usage"))["samples"]
        return found

    with subprocess.Popen([sys.executable, "-c", BUSY], start_new_session=True) as process:
        recorder = UsageRecorder(
            store, "usage", process.pid, gpus=lambda: chips, seconds=0.01, most=10, writes=0.0
        )
        # Two joined samples are as far apart as four of the first ones.
        while not store.stat("usage") or samples()[-1]["at"] - samples()[0]["at"] < 1:
            threading.Event().wait(0.02)
        recorder.close()
        os.killpg(process.pid, signal.SIGKILL)

    assert len(samples()) <= 11
    assert 80_000_000 < max(sample["memory"] for sample in samples()) < 1_000_000_000
    assert 0.05 < max(sample["cpu"] for sample in samples()) < 20
    assert samples()[-1]["chips"] == [{"busy": 0.5, "memory": 1, "memory_total": 2}]


def test_gpus_are_read_through_the_drivers_library(tmp_path: Path) -> None:
    source, library = tmp_path / "nvml.c", tmp_path / "libnvml.so"
    source.write_text(NVML)
    subprocess.run(["cc", "-shared", "-fPIC", "-o", library, source], check=True)

    read = gpus_of(str(library))

    # The third one fails.
    assert [(chip.busy, chip.memory, chip.memory_total) for chip in read()] == [
        (0.4, 1, 80),
        (0.8, 2, 80),
    ]
    assert list(gpus_of(str(tmp_path / "missing.so"))()) == []


def test_chips_of_a_tpu_are_reported_by_the_process_that_uses_it(
    tmp_path: Path, monkeypatch: Any
) -> None:
    package = tmp_path / "libtpu" / "sdk"
    package.mkdir(parents=True)
    (package / "tpumonitoring.py").write_text(LIBTPU)
    monkeypatch.syspath_prepend(tmp_path)
    sent: list[dict[str, Any]] = []

    report_tpu(sent.append, seconds=60)

    while not sent:
        threading.Event().wait(0.01)
    assert chips_in(sent[0]["chips"]) == [
        Chip(busy=0.935, memory=10**9, memory_total=16 * 10**9),
        Chip(busy=0.0, memory=2 * 10**9, memory_total=16 * 10**9),
    ]
    assert chips_in("what user code wrote") == []
