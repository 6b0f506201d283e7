"""Starting: `import kinetic` and `kinetic --help`, against an interpreter that does nothing."""

from __future__ import annotations

from collections.abc import Iterator

from figures import Budget, Figure
from measuring import Bench, in_turns


def figures(bench: Bench) -> Iterator[Figure]:
    bare, imported, used, helped = in_turns(
        bench.rounds(20, 5),
        lambda: bench.python("-c", "pass"),
        lambda: bench.python("-c", "import kinetic"),
        lambda: bench.python("-c", _USE),
        lambda: bench.python("-m", "kinetic_cli", "--help"),
    )
    floor = "python -c pass"
    yield Figure(
        what="import kinetic",
        samples=imported,
        floor=floor,
        floor_samples=bare,
        budgets=(Budget(0.06),),
    )
    yield Figure(
        what="import kinetic, decorate a function",
        samples=used,
        floor=floor,
        floor_samples=bare,
        budgets=(Budget(0.15),),
    )
    yield Figure(
        what="kinetic --help",
        samples=helped,
        floor=floor,
        floor_samples=bare,
        budgets=(Budget(0.12),),
    )


_USE = "import kinetic; kinetic.run(accelerator='cpu')(lambda: None)"
