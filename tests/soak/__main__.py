"""Kill processes of jobs, evict their pods, or let their bucket fail, many times.

    python -m tests.soak kills|faults|evictions|batches

From the root of the repository. Ends with 1 if a value was lost or wrong, or anything was left behind.
"""

from __future__ import annotations

import argparse
import sys

from tests.soak import batches, evictions, kills, windows


def main() -> int:
    """Run one of the modes."""
    parser = argparse.ArgumentParser(prog="python -m tests.soak", description=__doc__)
    modes = parser.add_subparsers(required=True)
    killing = modes.add_parser("kills", help="kill one process of each job")
    killing.add_argument("--store", choices=kills.STORES, default="both")
    killing.add_argument("--victim", choices=kills.MOMENTS, action="append", help="may be repeated")
    faults = modes.add_parser("faults", help="let the bucket fail for some seconds at each step")
    faults.add_argument("--step", choices=windows.STEPS, action="append")
    faults.add_argument("--fault", choices=windows.FAULTS, action="append")
    faults.add_argument("--window", type=float, action="append", help="seconds; 3 and 20")
    evicting = modes.add_parser("evictions", help="evict pods of jobs on the test bed")
    evicting.add_argument("--hosts", type=int, choices=(1, 2, 4), help="of each job; drawn")
    evicting.add_argument("--moment", choices=evictions.MOMENTS, action="append")
    for mode, run, rounds, at_once in (
        (killing, kills.run, 300, 1),
        (faults, windows.run, None, 4),
        (evicting, evictions.run, 100, 8),
    ):
        mode.set_defaults(run=run)
        mode.add_argument("--rounds", type=int, default=rounds)
        mode.add_argument("--first", type=int, default=0, help="the number of the first round")
        mode.add_argument("--seed", type=int, default=1)
        mode.add_argument("--minutes", type=float, default=float("inf"), help="begin nothing after")
        if at_once > 1:
            mode.add_argument("--at-once", type=int, default=at_once, help="so many run together")
    batch = modes.add_parser("batches", help="evict pods of one batch on the test bed")
    batch.set_defaults(run=batches.run)
    batches.add_arguments(batch)
    given = parser.parse_args()
    return int(given.run(given))


if __name__ == "__main__":
    sys.exit(main())
