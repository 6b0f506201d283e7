from __future__ import annotations

import subprocess
import sys

# A crash, not an exception, is what there is to see: so in a process of its own.
MEETING = """
import dataclasses, sys, threading
from kinetic_payload.records.decode import checked

sys.setswitchinterval(1e-6)
failures = []
threading.excepthook = failures.append
for _ in range(300):
    inner = dataclasses.make_dataclass("Inner", [(f"b{n}", int) for n in range(5)])
    fields = [(f"a{n}", int | None, None) for n in range(20)]
    outer = dataclasses.make_dataclass("Outer", [*fields, ("inner", inner | None, None)])
    ready = threading.Barrier(4)

    def meet():
        ready.wait(60)
        found = checked(outer, {"a19": 3, "inner": {f"b{n}": n for n in range(5)}})
        assert (found.a0, found.a19, found.inner.b4) == (None, 3, 4)

    threads = [threading.Thread(target=meet) for _ in range(4)]
    for thread in threads: thread.start()
    for thread in threads: thread.join()
assert not failures, failures
"""


def test_threads_that_meet_a_type_for_the_first_time_together_do_not_crash() -> None:
    subprocess.run([sys.executable, "-c", MEETING], check=True)
