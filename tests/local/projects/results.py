import json
import os
import pathlib
import shutil
import sys
import threading
import time

import kinetic


@kinetic.run(accelerator="cpu")
def work(size=1, seconds=0.0):
    print("working", flush=True)
    time.sleep(seconds)
    return b"x" * size


def tried(call):
    try:
        return repr(call())
    except Exception as error:
        return f"{type(error).__name__}: {error}"


def again(job):
    return kinetic.attach(job.job_id)


def collected_at_once():
    ends = []
    for _ in range(2):
        job = work.run_async(200_000, 0.1)
        handles = [again(job) for _ in range(4)]
        threads = [
            threading.Thread(
                target=lambda h=h: ends.append(tried(lambda: len(h.result(timeout=100))))
            )
            for h in handles
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    return ends


def cancelled_and_finished():
    ends = []
    for number in range(6):
        job = work.run_async(1, 0.02 * (number % 4))
        time.sleep(0.03 * (number % 6))
        ends.append(
            [
                tried(job.cancel),
                job.status().value,
                tried(lambda: job.result(cleanup=False)),
                tried(job.cancel),
                tried(again(job).result),
            ]
        )
    return ends


if __name__ == "__main__":
    print(json.dumps(globals()[sys.argv[1]]()))
