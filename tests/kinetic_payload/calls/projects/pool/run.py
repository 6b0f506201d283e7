import concurrent.futures
import dataclasses
import enum
import multiprocessing
import sys

from shipping import ship

if __package__:
    from . import helpers
else:
    import helpers


class Kind(enum.Enum):
    A = 1


@dataclasses.dataclass
class Item:
    x: int
    kind: Kind = Kind.A


FACTOR = 3


def work(item):
    assert isinstance(item, Item) and item.kind is Kind.A
    return Item(item.x * FACTOR + helpers.ONE)


def main(method):
    context = multiprocessing.get_context(method)
    with context.Pool(2) as pool:
        values = pool.map(work, [Item(1), Item(2)])
    with concurrent.futures.ProcessPoolExecutor(1, mp_context=context) as pool:
        values += list(pool.map(work, [Item(3)]))
        values.append(pool.submit(helpers.doubled, 4).result())
    process = context.Process(target=work, args=(Item(5),))
    process.start()
    process.join()
    assert all(type(value) is Item for value in values[:3])
    return values, process.exitcode


if __name__ == "__main__":
    import multiprocessing

    values, code = ship(main, sys.argv[1])
    print([getattr(value, "x", value) for value in values], code, type(values[0]) is Item)
