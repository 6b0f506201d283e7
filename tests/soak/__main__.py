"""Kill processes of jobs, evict their pods, or let their bucket fail, many times.

    python -m tests.soak kills|faults|evictions

From the root of the repository. Ends with 1 if a value was lost or wrong, or anything was left behind.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections import Counter
from contextlib import ExitStack
from pathlib import Path

from tests.soak import evictions, windows
from tests.soak.kills import MOMENTS, Round, Told, draw, end_all
from tests.soak.places import Place

STORES = {"folder": ["folder"], "bucket": ["bucket"], "both": ["folder", "bucket"]}


def main() -> int:
    """Run what was asked for."""
    parser = argparse.ArgumentParser(prog="python -m tests.soak", description=__doc__)
    modes = parser.add_subparsers(dest="mode", required=True)
    kills = modes.add_parser("kills", help="kill one process of each job")
    kills.add_argument("--store", choices=STORES, default="both")
    kills.add_argument("--victim", choices=MOMENTS, action="append", help="may be repeated")
    faults = modes.add_parser("faults", help="let the bucket fail for some seconds at each step")
    faults.add_argument("--step", choices=windows.STEPS, action="append")
    faults.add_argument("--fault", choices=windows.FAULTS, action="append")
    faults.add_argument("--window", type=float, action="append", help="seconds; 3 and 20")
    evicting = modes.add_parser("evictions", help="evict pods of jobs on the test bed")
    for mode, at_once in ((faults, 4), (evicting, 8)):
        mode.add_argument("--at-once", type=int, default=at_once, help="so many run together")
    for mode, rounds in ((kills, 300), (faults, None), (evicting, 100)):
        mode.add_argument("--rounds", type=int, default=rounds)
        mode.add_argument("--first", type=int, default=0, help="the number of the first round")
        mode.add_argument("--seed", type=int, default=1)
        mode.add_argument("--minutes", type=float, default=float("inf"), help="begin nothing after")
    given = parser.parse_args()
    runs = {"kills": _kills, "faults": windows.run, "evictions": evictions.run}
    return runs[given.mode](given)


def _kills(given: argparse.Namespace) -> int:
    victims = given.victim or list(MOMENTS)
    chosen = "".join(f" --victim {victim}" for victim in given.victim or ())
    told: list[tuple[str, str, Told]] = []
    began = time.monotonic()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="soak-")))
        places = {
            kind: stack.enter_context(Place(folder / kind, kind)) for kind in STORES[given.store]
        }
        for number in range(given.first, given.first + given.rounds):
            if time.monotonic() - began > 60 * given.minutes:
                break
            kill = draw(given.seed, number, stores=list(places), victims=victims)
            place = places[kill.store]
            one = Round(place, kill)
            try:
                one.run()
            except Exception as error:
                one.told.problems.append(f"{type(error).__name__}: {error}")
            if one.told.problems:
                end_all(place)
                again = (
                    f"--seed {given.seed} --store {given.store}{chosen} --first {number} --rounds 1"
                )
                print(
                    f"FAILED {kill} {one.told.job_id}: {' '.join('; '.join(one.told.problems).split())} | "
                    f"python -m tests.soak kills {again}",
                    flush=True,
                )
                # What a failed round left is not the next one's.
                places[kill.store] = stack.enter_context(
                    Place(folder / f"{kill.store}-{number + 1}", kill.store)
                )
            late = "" if one.told.killed else " (it had ended before)"
            print(f"{number} {kill} → {one.told.ending}{late}", file=sys.stderr, flush=True)
            told.append((kill.victim, kill.moment, one.told))
    print(_table(told))
    print(f"{len(told)} rounds in {time.monotonic() - began:.0f} s")
    return any(one.problems for _, _, one in told)


def _table(told: list[tuple[str, str, Told]]) -> str:
    lines = [
        "| killed | when | kills | value | failed, said so | nothing, nor left a day later | lost | wrong | processes left | orphans left |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for key in [*dict.fromkeys((victim, moment) for victim, moment, _ in told), ("all", "")]:
        those = [one for victim, moment, one in told if key in ((victim, moment), ("all", ""))]
        endings = Counter(one.ending.partition(",")[0] for one in those if one.killed)
        figures = [
            sum(one.killed for one in those),
            endings["value"],
            endings["failed"],
            endings["nothing"],
            sum(one.lost for one in those),
            sum(one.wrong for one in those),
            sum(one.processes for one in those),
            sum(one.orphans for one in those),
        ]
        lines.append(f"| {key[0]} | {key[1]} | {' | '.join(map(str, figures))} |")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
