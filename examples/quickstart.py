"""The main use of Kinetic, on this machine: JAX training in three topologies, and a detached run.

Run it with the first command of the README. It needs no cloud and leaves nothing running.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent / "digits"))
os.environ.setdefault("KINETIC_BACKEND", "local")

import training


def show(title: str, trained: training.Trained) -> None:
    print(
        f"{title}: accuracy {trained.accuracy:.3f} on held-out digits, {trained.devices} devices in "
        f"{trained.processes} process(es), {trained.seconds:.1f} s\n",
        flush=True,
    )
    if trained.accuracy < 0.95:
        sys.exit(f"{title}: the accuracy is below 0.95")


def main() -> None:
    """Train in three topologies, then start a job and collect it from another process."""
    print("1. One host of 4 chips (tpu-v5litepod-4)", flush=True)
    show("one host", training.train_on_four_chips())

    print("2. A slice of 4 hosts under one controller (tpu-v5litepod-16, Pathways)", flush=True)
    show("one controller", training.train_as_one_controller())

    print("3. A slice of 2 hosts, a process each (tpu-v4-8, GKE)", flush=True)
    show("several processes", training.train_as_several_processes())

    print("4. A detached job, collected by another process", flush=True)
    job = training.where_am_i.run_async()
    print(f"submitted {job.job_id}", flush=True)
    code = "import sys, kinetic; print(kinetic.attach(sys.argv[1]).result(timeout=600))"
    subprocess.run([sys.executable, "-c", code, job.job_id], check=True)


if __name__ == "__main__":
    main()
