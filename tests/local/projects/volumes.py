import json
import os
import subprocess
import sys

import kinetic

DATA = kinetic.Data("set")
NAME, COVERED = sys.argv[1:]
VOLUMES = {
    f"/{NAME}": DATA,
    f"/{NAME}-deep/down": kinetic.Data("other"),
    f"/{NAME}-file": kinetic.Data("config.json"),
    COVERED: kinetic.Data("other"),
}


@kinetic.run(accelerator="cpu", volumes=VOLUMES)
def work(argument):
    with open(f"/{NAME}/new", "w") as stream:
        stream.write("written")
    with open(f"{COVERED}/mine", "w") as stream:
        stream.write("changed")
    listed = subprocess.run(["ls", f"/{NAME}"], capture_output=True, text=True).stdout.split()
    return {
        "set": sorted(os.listdir(f"/{NAME}")),
        "other": os.listdir(f"/{NAME}-deep/down"),
        "covered": sorted(os.listdir(COVERED)),
        "file": open(f"/{NAME}-file/config.json").read(),
        "argument": sorted(os.listdir(argument)),
        "apart": argument != f"/{NAME}",
        "children": listed,
        "environment": os.environ["KINETIC_OUTPUT_DIR"].startswith("/"),
    }


if __name__ == "__main__":
    print(json.dumps(work.run_async(DATA).result(timeout=60)))
