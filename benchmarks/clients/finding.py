"""A user's script with a large argument in which a `Data` could be."""

import json
import sys
import time
from pathlib import Path

import cloudpickle

import kinetic
from kinetic_payload.calls.dump import DumpedCall, dump_call
from kinetic_payload.project.roots import entry_of, plan_project


def total(numbers: list[int]) -> int:
    return sum(numbers)


def dumped(numbers: list[int]) -> DumpedCall:
    here = Path(__file__).parent
    plan = plan_project(
        entry_of(total), sys_path=sys.path, cwd=here, home=Path.home(), override=None
    )
    return dump_call(
        total,
        (numbers,),
        {},
        plan=plan,
        ships=bool,
        data_type=kinetic.Data,
        volumes={},
    )


if __name__ == "__main__":
    numbers = list(range(10**6, 10**6 + int(sys.argv[3])))
    found = []
    for _ in range(int(sys.argv[2]) + 1):
        began = time.perf_counter()
        pickled = cloudpickle.dumps(numbers)
        floor = time.perf_counter() - began
        del pickled
        began = time.perf_counter()
        call = dumped(numbers)
        found.append({"dump": time.perf_counter() - began, "floor": floor})
        del call
    Path(sys.argv[1]).write_text(json.dumps(found[1:]))
