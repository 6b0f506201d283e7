import multiprocessing
import sys
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


@kinetic.run(accelerator="cpu")
def work(method):
    context = multiprocessing.get_context(method)
    with ProcessPoolExecutor(2, mp_context=context) as pool:
        items = list(pool.map(square, [Item(1), Item(2)]))
    queue = context.Queue()
    process = context.Process(target=put, args=(queue, 3))
    process.start()
    answer = queue.get()
    process.join()
    return items, all(isinstance(item, Item) for item in items), answer, process.exitcode


if __name__ == "__main__":
    print(work(sys.argv[1]))
