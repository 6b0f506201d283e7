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
    return {
        "closure": closure,
        "attributed": attributed,
        "nested": [{"a": (made("nested"),)}],
        "key": {made("key"): 1},
        "frozen": frozenset([made("frozen set")]),
        "default": collections.defaultdict(list, a=[made("default dict")]),
        "dataclass": t.Config(made("dataclass")),
        "attribute": t.Keeping(made("attribute")),
        "bound": t.Keeping(made("bound method")).method,
        "keyword": functools.partial(t.use, data=made("keyword")),
        "error": ValueError(made("exception")),
        "dumps": t.Nesting(made("pickle in a pickle")),
        "state": t.Stateful(made("state")),
        "sub": Sub("sub"),
    }


def main(x):
    found = [x["nested"][0]["a"][0], *x["key"], *x["frozen"], x["sub"]]
    found += [x[name].data for name in ("dataclass", "attribute", "dumps", "state")]
    found += [x[name]() for name in ("bound", "keyword", "attributed")]
    found += [x["default"]["a"][0], x["error"].args[0], *x["closure"]()]
    assert all(isinstance(path, str) for path in found), found
    return sorted(found)


value = everything()
found = dump(main, value).data
paths = ship(main, value)
print(paths == sorted(f"/data/{one.key}" for one in found), len(set(paths)))
print(len({one.value.path for one in found}))
