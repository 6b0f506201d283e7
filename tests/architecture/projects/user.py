import asyncio
from pathlib import Path
from typing import assert_type

import kinetic
from kinetic import BatchHandle, Data, JobHandle, JobStatus, attach, list_jobs


@kinetic.run(accelerator="cpu", backend="local", timeout=3, labels={"team": "vision"})
def train(lr: float, epochs: int = 1) -> str:
    return f"{lr} {epochs}"


@kinetic.run()
def read(folder: str, table: str | Path = "", tables: list[str] | None = None) -> int:
    return len(folder)


class Trainer:
    @kinetic.run()
    def fit(self, x: int) -> float:
        return float(x)


assert_type(train(0.1), str)
assert_type(train(lr=0.1, epochs=3), str)
assert_type(train.run_async(0.1), JobHandle[str])
assert_type(train.run_async(0.1).result(timeout=3), str)
assert_type(train.run_async_map([0.1]), BatchHandle[str])
assert_type(train.run_async_map([0.1]).results(), list[str])
assert_type(train.run_async_map([0.1]).results(return_exceptions=True), list[str | BaseException])
assert_type(train.run_async_map([0.1]).failures(), list[JobHandle[str]])
assert_type(Trainer().fit(1), float)
assert_type(Trainer().fit.run_async(1).result(), float)
assert_type(attach("id").status(), JobStatus)
assert_type(list_jobs(), list[JobHandle])
assert_type(Data(".").path, str)
assert_type(read(Data("."), Data("gs://bucket/table", fuse=True), [Data("hf://name")]), int)

anything: JobHandle = train.run_async(0.1)
known: JobHandle[str] = attach("id")


async def wait() -> None:
    assert_type(await train.run_async(0.1), str)
    assert_type(
        await asyncio.gather(train.run_async(0.1), Trainer().fit.run_async(1)), tuple[str, float]
    )
