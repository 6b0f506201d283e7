import collections
import functools

import types_of as t
from shipping import Data, dump, ship


class Sub(Data):
    pass


GLOBAL = Data("global")


def everything():
    made = [Data(f"{index}") for index in range(16)]
    closed, default, bound = Data("closure"), Data("default"), Data("bound")

    def closure(x=default):
        return closed, x, GLOBAL

    slotted = t.Slotted()
    slotted.data = made[0]

    def attributed():
        return attributed.data

    attributed.data = made[14]
    return (
        closure,
        attributed,
        {
            "nested": [{"a": (made[2],)}],
            "key": {made[3]: 1},
            "set": {made[4]},
            "dataclass": t.Config(made[5]),
            "slots": slotted,
            "attribute": t.Keeping(made[6]),
            "partial": functools.partial(t.use, made[7]),
            "keyword": functools.partial(t.use, data=made[8]),
            "deque": collections.deque([made[9]]),
            "bound": t.Keeping(bound).method,
            "list": [made[1]],
            "error": ValueError(made[10]),
            "dumps": t.Nesting(made[11]),
            "state": t.Stateful(made[12]),
            "sub": Sub("sub"),
            "frozen": frozenset([made[13]]),
            "default": collections.defaultdict(list, a=[made[15]]),
        },
    )


def main(closure, attributed, x):
    found = [
        x["nested"][0]["a"][0],
        *x["key"],
        *x["set"],
        x["dataclass"].data,
        x["slots"].data,
        x["attribute"].data,
        x["partial"](),
        x["keyword"](),
        x["deque"][0],
        x["bound"](),
        x["list"][0],
        x["error"].args[0],
        x["dumps"].data,
        x["state"].data,
        x["sub"],
        *x["frozen"],
        *closure(),
        attributed(),
        x["default"]["a"][0],
    ]
    assert all(isinstance(path, str) for path in found), found
    return sorted(found)


call = everything()
dumped = dump(main, *call)
paths = ship(main, *call)
keys = sorted("/data/" + found.key for found in dumped.data)
print(paths == keys, len(set(paths)), sorted(f.value.path for f in dumped.data)[-6:])
