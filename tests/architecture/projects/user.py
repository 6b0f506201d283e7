from typing import assert_type

import kinetic
from kinetic import Data, JobHandle, JobStatus, attach, list_jobs


@kinetic.run(accelerator="cpu", backend="local", timeout=3, labels={"team": "vision"})
def train(lr: float, epochs: int = 1) -> str:
    return f"{lr} {epochs}"


class Trainer:
    @kinetic.run()
    def fit(self, x: int) -> float:
        return float(x)


assert_type(train(0.1), str)
assert_type(train(lr=0.1, epochs=3), str)
assert_type(train.run_async(0.1), JobHandle)
assert_type(Trainer().fit(1), float)
assert_type(Trainer().fit.run_async(1), JobHandle)
assert_type(attach("id").status(), JobStatus)
assert_type(list_jobs(), list[JobHandle])
assert_type(Data(".").path, str)


async def wait() -> None:
    await train.run_async(0.1)
