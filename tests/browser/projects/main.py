import sys
import time
from pathlib import Path

import kinetic

HOSTILE = "<script>window.pwned = 1</script><img src=x onerror='window.pwned = 1'>"


@kinetic.run(accelerator="cpu")
def train(path):
    step = 0
    while True:
        print(f"step {step}", flush=True)
        print(f"warning {step}", file=sys.stderr, flush=True)
        step += 1
        while not Path(path, f"go-{step}").exists():
            time.sleep(0.05)


@kinetic.run(accelerator="cpu")
def hostile():
    print(HOSTILE)
    print("\x1b]0;title\x07 \x1b[31mred\x1b[0m password=swordfish")
    raise ValueError(HOSTILE)


@kinetic.run(accelerator="cpu")
def even(x, path):
    if x % 2 and not Path(path, "go-1").exists():
        raise ValueError(f"{x % 4} is odd, password=swordfish")
    return x


if __name__ == "__main__":
    which, *args = sys.argv[1:]
    if which == "batch":
        inputs = [{"x": x, "path": args[0]} for x in range(8)]
        print(even.run_async_map(inputs, input_mode="kwargs", name=HOSTILE).group_id)
    else:
        print(globals()[which].run_async(*args).job_id)
