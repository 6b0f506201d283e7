"""What cannot be right is refused before any work, and says what to do instead."""

from __future__ import annotations

import json
from typing import Any

SCRIPT = """
import functools, json, os, pathlib, sys, threading
import kinetic
from kinetic import Data

HOME = pathlib.Path(os.environ["KINETIC_HOME"])
LOCK = threading.Lock()
on_cpu = kinetic.run(accelerator="cpu")

@on_cpu
def one(x):
    return x

@on_cpu
def takes(a, b=1, *, c):
    return a

@on_cpu
def uses_lock():
    return LOCK

async def asynchronous(): pass
def generator(): yield 1
async def both(): yield 1

def job(**options):
    def work(): return 1
    return kinetic.run(**{"accelerator": "cpu", **options})(work).run_async()

def with_variable(name, value, call=lambda: one.run_async(1)):
    before = dict(os.environ)
    os.environ[name] = value
    try:
        call()
    finally:
        os.environ.clear()
        os.environ.update(before)

def broken_profiles():
    path = pathlib.Path("broken.json")
    path.write_text('{"current": nul')
    with_variable("KINETIC_PROFILES_FILE", str(path))

CASES = {
    "accelerator": lambda: job(accelerator="tpu-v5litepod4"),
    "chips": lambda: job(accelerator="v5e-3"),
    "gpu": lambda: job(accelerator="gpu-a1000"),
    "too many gpus": lambda: job(accelerator="gpu-l4x3"),
    "no accelerator": lambda: job(accelerator=None),
    "image": lambda: job(container_image="bundeld"),
    "custom image": lambda: job(container_image="gcr.io/x/y:1"),
    "prebuilt": lambda: job(container_image="prebuilt"),
    "backend": lambda: job(backend="locl"),
    "backend variable": lambda: with_variable("KINETIC_BACKEND", "bogus"),
    "relative mount": lambda: job(volumes={"data": Data("set")}),
    "system mount": lambda: job(volumes={"/usr/x": Data("set")}),
    "mount in the workspace": lambda: job(volumes={str(HOME / "x"): Data("set")}),
    "nested mounts": lambda: job(volumes={"/data": Data("set"), "/data/x": Data("set")}),
    "no data": lambda: job(volumes={"/data": "set"}),
    "missing volume": lambda: job(volumes={"/data": Data("nope")}),
    "pattern": lambda: job(capture_env_vars=["A*B"]),
    "assignment": lambda: job(capture_env_vars=["A=1"]),
    "text for a list": lambda: job(capture_env_vars="HOME"),
    "timeout": lambda: job(timeout=-1),
    "retries": lambda: job(retries="x"),
    "memory": lambda: job(memory="lots"),
    "few bytes": lambda: job(memory=16),
    "cpu": lambda: job(cpu=0),
    "labels": lambda: job(labels={"a b": "c"}),
    "debug and retries": lambda: job(debug=True, retries=1),
    "spot": lambda: job(spot="yes"),
    "bare": lambda: kinetic.run(lambda: 1),
    "cached": lambda: on_cpu(functools.lru_cache(lambda: 1)),
    "asynchronous": lambda: on_cpu(asynchronous),
    "generator": lambda: on_cpu(generator),
    "asynchronous generator": lambda: on_cpu(both),
    "partial": lambda: on_cpu(functools.partial(asynchronous)),
    "class method": lambda: on_cpu(classmethod(lambda cls: 1)),
    "static method": lambda: on_cpu(staticmethod(lambda: 1)),
    "builtin": lambda: on_cpu(print),
    "twice": lambda: on_cpu(one),
    "unknown option": lambda: kinetic.run(acelerator="cpu"),
    "too few arguments": lambda: takes.run_async(),
    "too many arguments": lambda: takes.run_async(1, 2, 3, c=1),
    "unknown argument": lambda: takes(1, c=1, d=2),
    "missing data": lambda: one.run_async({"a": [Data("nope")]}),
    "mounted bucket": lambda: one.run_async(Data("gs://bucket/x.h5", fuse=True)),
    "data set with code": lambda: one.run_async(Data("hf://imdb", hf_trust_remote_code=True)),
    "missing data to show": lambda: one.run_async(Data("nope", fuse=True)),
    "web": lambda: Data("https://example.org/x"),
    "lock": lambda: one.run_async({"cfg": [1, threading.Lock()]}),
    "generator object": lambda: one.run_async(x for x in [1]),
    "open file": lambda: one.run_async(open("set/x")),
    "lock of the script": lambda: uses_lock.run_async(),
    "number": lambda: with_variable("KINETIC_CONTEXT_SIZE_WARN_MB", "abc"),
    "switch": lambda: with_variable("KINETIC_NO_DEFAULT_EXCLUDES", "maybe"),
    "missing profile": lambda: with_variable("KINETIC_PROFILE", "nope"),
    "broken profiles": broken_profiles,
    "root": lambda: with_variable("KINETIC_PACKAGE_ROOT", "/usr"),
    "store": lambda: with_variable("KINETIC_STORE", "s3://x"),
    "mistyped store": lambda: with_variable("KINETIC_STORE", "gs:/bucket"),
    "store in a folder of theirs": lambda: with_variable("KINETIC_STORE", "set"),
}

def refusal(call):
    try:
        call()
    except (kinetic.KineticError, TypeError) as error:
        return [type(error).__name__, str(error)]
    return ["accepted", ""]

if __name__ == "__main__":
    print(json.dumps({name: refusal(call) for name, call in CASES.items()}))
"""

ADVICE = {
    "accelerator": "Did you mean v5litepod?",
    "chips": "v5litepod-4: 4 chips in 2x2",
    "gpu": "Did you mean a100",
    "too many gpus": "l4x4",
    "no accelerator": "Write a name such as",
    "image": "Did you mean 'bundled'?",
    "custom image": "Leave container_image out",
    "prebuilt": "Leave container_image out",
    "backend": "Did you mean 'local'?",
    "backend variable": "(from: KINETIC_BACKEND)",
    "relative mount": "such as /data",
    "system mount": "/usr belongs to the system",
    "mount in the workspace": "A volume cannot appear at",
    "nested mounts": "lie inside each other",
    "no data": "volumes={'/data': kinetic.Data(...)}",
    "missing volume": "there is no 'nope'",
    "pattern": "beginnings that end in '*'",
    "assignment": "the values are taken from your environment",
    "text for a list": "capture_env_vars=['HOME']",
    "timeout": "Give seconds (3600) or a timedelta",
    "retries": "Give 0, 1, 2",
    "memory": "'16Gi'",
    "few bytes": "with a unit: memory='16Gi'",
    "cpu": "Give a number such as 4",
    "labels": "such as 'team'",
    "debug and retries": "Leave retries out",
    "spot": "neither True nor False",
    "bare": "@kinetic.run()",
    "cached": "@functools.lru_cache on top",
    "asynchronous": "asyncio.run(...)",
    "generator": "Return a list",
    "asynchronous generator": "asyncio.run(...)",
    "partial": "asyncio.run(...)",
    "class method": "Put @classmethod on top",
    "static method": "Put @staticmethod on top",
    "builtin": "a function of your own",
    "twice": "Keep one of the two",
    "unknown option": "acelerator",
    "too few arguments": "missing a required argument: 'a'",
    "too many arguments": "too many positional arguments",
    "unknown argument": "unexpected keyword argument 'd'",
    "missing data": "there is no 'nope'",
    "mounted bucket": "Leave fuse=True out",
    "data set with code": "require 'datasets<4'",
    "missing data to show": "there is no 'nope'",
    "web": "It takes local paths, gs:// and hf://",
    "lock": "x['cfg'][1] is a _thread.lock",
    "generator object": "Pass a list of its items",
    "open file": "kinetic.Data",
    "lock of the script": "uses_lock (global 'LOCK')",
    "number": "KINETIC_CONTEXT_SIZE_WARN_MB=100",
    "switch": "KINETIC_NO_DEFAULT_EXCLUDES=1",
    "missing profile": "kinetic profile create",
    "broken profiles": "broken at line 1",
    "root": "Set it to a folder that contains",
    "store": "Use gs://BUCKET or a folder",
    "mistyped store": "Use gs://BUCKET or a folder",
    "store in a folder of theirs": "To keep jobs beside these files all the same: mkdir",
}
"""What each refusal says, at least."""


def test_what_cannot_be_right_is_refused_before_any_work_with_advice(project: Any) -> None:
    project.write("set/x", "x")

    said = json.loads(project.script(SCRIPT))

    assert set(said) == set(ADVICE)
    wrong = {
        name: said[name]
        for name, advice in ADVICE.items()
        if said[name][0] == "accepted" or advice not in said[name][1]
    }
    assert wrong == {}
    assert not project.home.exists() or not list(project.home.rglob("*.json"))
    store = project.home / "store"
    assert not [path for path in store.rglob("*") if path.is_file() and "locks" not in path.parts]


def test_what_the_requirements_get_wrong_is_refused_in_uvs_own_words(project: Any) -> None:
    project.write("requirements.txt", "--no-index\n# a comment\nno-such-package==1.0\n")
    project.write(
        "main.py",
        """
        import kinetic

        @kinetic.run(accelerator="cpu", container_image="bundled")
        def work():
            return 1

        if __name__ == "__main__":
            work()
    """,
    )

    done = project.run("main.py")

    assert done.returncode == 1
    assert "no-such-package was not found" in done.stderr
    assert "requirements.txt:3: no-such-package==1.0" in done.stderr
    assert not list((project.home / "store").rglob("payload.pkl"))
