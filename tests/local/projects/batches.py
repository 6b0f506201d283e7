"""Batches of a script: its own classes, methods and data; a submitter that is killed; another that collects."""

import json
import os
import pathlib
import signal
import sys
import time

import kinetic
from kinetic.batches.discover import find_batches
from kinetic.settings.settings import Settings


class Setting:
    def __init__(self, rate):
        self.rate = rate

    def __repr__(self):
        return f"rate {self.rate}"


class Poor(Exception):
    def __init__(self, setting):
        super().__init__(setting)
        self.setting = setting


class Model:
    def __init__(self, scale):
        self.scale = scale

    @kinetic.run(accelerator="cpu")
    def fit(self, setting, offset):
        if setting.rate > 3:
            raise Poor(setting)
        return Setting(self.scale * setting.rate + offset.rate)


@kinetic.run(accelerator="cpu")
def read(data, name, shared):
    return [(pathlib.Path(each) / name).read_text() for each in (data, shared)]


@kinetic.run(accelerator="cpu")
def count(index, marks):
    while index > 2 and not os.path.exists(f"{marks}/go"):
        time.sleep(0.02)
    with open(f"{marks}/{index}", "a") as mark:
        mark.write("x")
    return index


def two_at_once():
    settings = (Setting(rate) for rate in range(5))
    fitted = Model(10).fit.run_async_map(settings, common={"offset": Setting(7)})
    one, two = kinetic.Data("one"), kinetic.Data("two")
    texts = read.run_async_map([(one, "a"), (two, "b"), (one, "b")], common={"shared": one})
    values = [
        value.setting.rate if isinstance(value, Poor) else [value.rate, type(value) is Setting]
        for value in fitted.results(return_exceptions=True)
    ]
    return [values, texts.results(), len(os.listdir(f"{os.environ['KINETIC_HOME']}/store/data"))]


@kinetic.run(accelerator="cpu")
def square(index):
    return index * index


def a_hundred():
    batch = square.run_async_map(range(100), max_concurrent=2)
    return batch.results()


def submit_and_die(marks, action=None):
    """Die once the batch is submitted, or just before an *action* of the submit."""
    if action is None:
        return die_submitted(marks)
    pathlib.Path(marks, "go").touch()
    sys.addaudithook(
        lambda event, args: action in f"{event} {args}" and os.kill(os.getpid(), signal.SIGKILL)
    )
    count.run_async_map(range(6), common={"marks": marks}, inputs_per_pod=4)


def all_results():
    return [batch.results(timeout=100) for batch in find_batches(Settings.from_environment())]


def die_submitted(marks):
    batch = count.run_async_map(range(6), common={"marks": marks}, inputs_per_pod=4)
    print(batch.group_id, flush=True)
    os.kill(os.getpid(), signal.SIGKILL)


def collect(group_id, marks):
    batch = kinetic.attach_batch(group_id)
    early = dict(batch.status_counts())
    found = []
    for index, value in batch.iter_results():
        found.append([index, value])
        if len(found) == 3:
            pathlib.Path(marks, "go").touch()
    return [early, found]


def results(group_id):
    batch = kinetic.attach_batch(group_id)
    return [batch.results(), batch.status_counts(), repr(batch)]


if __name__ == "__main__":
    print(json.dumps(globals()[sys.argv[1]](*sys.argv[2:])))
