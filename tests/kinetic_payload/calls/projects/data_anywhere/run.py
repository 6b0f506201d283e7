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
        "nested": [{made("key"): (made("nested"),)}],
        "bound": t.Keeping(made("bound method")).method,
        "error": ValueError(made("exception")),
        "dumps": t.Nesting(GLOBAL),
        "state": t.Stateful(made("state")),
        "sub": Sub("sub"),
    }


def main(x):
    [(key, (nested,))] = x["nested"][0].items()
    found = [key, nested, x["sub"], x["dumps"].data, x["state"].data, x["error"].args[0]]
    found += [x["bound"](), x["attributed"](), *x["closure"]()]
    assert all(isinstance(path, str) for path in found), found
    return sorted(set(found))


value = everything()
found = dump(main, value).data
paths = ship(main, value)
print(paths == sorted(f"/data/{one.key}" for one in found), len(paths))
print(len({one.value.path for one in found}))
