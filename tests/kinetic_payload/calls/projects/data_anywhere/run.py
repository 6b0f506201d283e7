import collections
import functools

import types_of as t
from shipping import Data, dump, ship


class Sub(Data):
    pass


GLOBAL = Data("global")


def everything():
    """Return functions and values that hold `Data`, each called by the place where it is."""
    closed, default, made = Data("closure"), Data("default"), lambda name: Data(name)

    def closure(x=default):
        return closed, x, GLOBAL

    def attributed():
        return attributed.data

    attributed.data = made("attribute of a function")
    slotted = t.Slotted()
    slotted.data = made("slot")
    return {
        "closure": closure,
        "attributed": attributed,
        "nested": [{"a": (made("nested"),)}],
        "key": {made("key"): 1},
        "set": {made("set")},
        "frozen": frozenset([made("frozen set")]),
        "deque": collections.deque([made("deque")]),
        "default": collections.defaultdict(list, a=[made("default dict")]),
        "dataclass": t.Config(made("dataclass")),
        "slots": slotted,
        "attribute": t.Keeping(made("attribute")),
        "bound": t.Keeping(made("bound method")).method,
        "partial": functools.partial(t.use, made("partial")),
        "keyword": functools.partial(t.use, data=made("keyword")),
        "error": ValueError(made("exception")),
        "dumps": t.Nesting(made("pickle in a pickle")),
        "state": t.Stateful(made("state")),
        "sub": Sub("sub"),
    }


def main(x):
    found = [x["nested"][0]["a"][0], *x["key"], *x["set"], *x["frozen"], x["deque"][0], x["sub"]]
    found += [x[name].data for name in ("dataclass", "slots", "attribute", "dumps", "state")]
    found += [x[name]() for name in ("bound", "partial", "keyword", "attributed")]
    found += [x["default"]["a"][0], x["error"].args[0], *x["closure"]()]
    assert all(isinstance(path, str) for path in found), found
    return sorted(found)


value = everything()
found = dump(main, value).data
paths = ship(main, value)
print(paths == sorted(f"/data/{one.key}" for one in found), len(set(paths)))
print(len({one.value.path for one in found}))
