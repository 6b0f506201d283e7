"""(child) Tell the parent what the chips of this host's TPU do: only the process that uses a TPU can ask it.

https://cloud.google.com/tpu/docs/tpu-monitoring-library: a metric is a list with a text for each chip.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, Final

_SECONDS: Final = 10.0


def report_tpu(send: Callable[[dict[str, Any]], object], *, seconds: float = _SECONDS) -> None:
    """Report until the process ends, in a thread, if the installed libtpu has these metrics."""

    def run() -> None:
        from libtpu.sdk import tpumonitoring

        while True:
            busy, used, total = (
                [float(text) for text in tpumonitoring.get_metric(name).data()]
                for name in ("duty_cycle_pct", "hbm_capacity_usage", "hbm_capacity_total")
            )
            send({"chips": [[a / 100, b, c] for a, b, c in zip(busy, used, total, strict=False)]})
            pause.wait(seconds)

    def quietly() -> None:
        try:
            run()
        except Exception:  # noqa: BLE001 - another version of libtpu, or the parent has ended
            return

    pause = threading.Event()
    threading.Thread(target=quietly, name="kinetic-tpu-usage", daemon=True).start()
