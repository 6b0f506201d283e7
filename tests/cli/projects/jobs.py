import sys

import kinetic


@kinetic.run(accelerator="cpu")
def answer(x):
    print("[info] working", flush=True)
    return {"answer": x}


@kinetic.run(accelerator="cpu")
def much(size):
    return ["x" * 99] * (size // 100)


@kinetic.run(accelerator="cpu")
def fail():
    raise LookupError("[/path] is gone")


@kinetic.run(accelerator="cpu")
def wait():
    import time

    print("waiting", flush=True)
    time.sleep(600)


@kinetic.run(accelerator="cpu")
def even(x):
    print(f"got {x}", flush=True)
    if x % 2:
        raise ValueError("odd")
    return x


if __name__ == "__main__":
    which, *args = sys.argv[1:]
    if which == "batch":
        print(even.run_async_map(map(int, args)).group_id)
        sys.exit()
    print(globals()[which].run_async(*map(int, args)).job_id)
