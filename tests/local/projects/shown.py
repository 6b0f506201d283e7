import errno
import json
import os
import sys

import kinetic

NAME = sys.argv[1]


@kinetic.run(accelerator="cpu", volumes={f"/{NAME}": kinetic.Data("big/one.bin", fuse=True)})
def look(folder, file):
    def refused(change):
        try:
            change()
        except OSError as error:
            return errno.errorcode[error.errno]

    with open(f"{folder}/sub/x", "rb") as stream:
        start = stream.read()
    return {
        "seen": sorted(os.listdir(folder)),
        "size": os.path.getsize(f"{folder}/one.bin"),
        "start": start.decode(),
        "name": os.path.basename(file),
        "volume": [os.listdir(f"/{NAME}"), os.path.getsize(f"/{NAME}/one.bin")],
        "refused": [
            refused(lambda: open(f"{folder}/new", "w")),
            refused(lambda: open(f"{folder}/sub/x", "a")),
            refused(lambda: os.remove(f"{folder}/sub/x")),
            refused(lambda: open(f"/{NAME}/new", "w")),
            refused(lambda: open(file, "a")),
        ],
        "where": folder,
    }


if __name__ == "__main__":
    data = kinetic.Data("big", fuse=True), kinetic.Data("big/one.bin", fuse=True)
    print(json.dumps(look.run_async(*data).result()))
