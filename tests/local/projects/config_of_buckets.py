import json
import os
import sys

import kinetic

NAME = sys.argv[1]


class Config:
    def __init__(self):
        self.parts = [{"train": kinetic.Data("gs://sets/digits/")}]
        self.weights = kinetic.Data("gs://sets/models/weights.h5")


VOLUMES = {
    f"{NAME}/set": kinetic.Data("gs://sets/digits/test/"),
    f"{NAME}/models": kinetic.Data("gs://sets/models/weights.h5"),
}


@kinetic.run(accelerator="cpu", volumes=VOLUMES)
def work(config, same):
    folder = config.parts[0]["train"]
    return {
        "train": sorted(os.listdir(folder + "/train")),
        "once": folder == same,
        "weights": [os.path.basename(config.weights), open(config.weights).read()],
        "volumes": [os.listdir(f"{NAME}/set"), os.listdir(f"{NAME}/models")],
    }


if __name__ == "__main__":
    config = Config()
    done = work.run_async(config, kinetic.Data("gs://sets/digits/")).result()
    print(json.dumps(done))
