import json
import multiprocessing
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass

from near import triple

import kinetic


@dataclass
class Item:
    x: int


def square(item):
    return Item(item.x**2)


def put(queue, x):
    queue.put(triple(x))


def pooled(method):
    context = multiprocessing.get_context(method)
    with ProcessPoolExecutor(2, mp_context=context) as pool:
        items = list(pool.map(square, [Item(1), Item(2)]))
    queue = context.Queue()
    process = context.Process(target=put, args=(queue, 3))
    process.start()
    answer = queue.get()
    process.join()
    return items == [Item(1), Item(4)], answer, process.exitcode


@kinetic.run(accelerator="cpu")
def work():
    from joblib import Parallel, delayed

    found = {method: pooled(method) for method in ("fork", "spawn", "forkserver")}
    found["joblib"] = Parallel(n_jobs=2)(delayed(square)(item) for item in [Item(3)]) == [Item(9)]
    return found


if __name__ == "__main__":
    print(json.dumps(work()))
