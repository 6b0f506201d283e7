import other
from pack import tm
from shipping import ship

tm.batch, tm.cfg, tm.Config.lr = 64, {"a": 1}, 2
tm.CONFIG.depth = 5
tm.set_width(7)


def by_value():
    return tm.train()


def main():
    for function in (
        tm.train,
        tm.Trainer().train,
        tm.nested(),
        other.imports,
        other.reads,
        by_value,
        lambda: tm.current and (tm.batch, tm.cfg, tm.width, tm.Config.lr, tm.CONFIG.depth),
    ):
        print(ship(function) == function() == (64, {"a": 1}, 7, 2, 5), end=" ")
    print(ship(getattr, tm.Trainer(), "batch"))


main()
