"""One batch on the test bed: its pods are evicted, its store or its cluster is away, and it must lose nothing."""

from __future__ import annotations

import argparse
import json
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter, defaultdict
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field
from pathlib import Path

from tests.soak.evictions import GRACES, SCRIPT, Ground, prepared
from tests.soak.places import Submitter, print_failure
from urllib3.exceptions import HTTPError

# isort: split
# `evictions` makes these known.
from bed import send
from locks import locked

import kinetic
from kinetic.testing import eventually
from kinetic_k8s.manifests.labels import of_job
from kinetic_k8s.reading.attempts import PodView
from kinetic_payload.errors import UnavailableError
from kinetic_servers.gcs import GcsServer

BATCH = Path(__file__).parent / "projects" / "batch.py"
SHORTENED = 2
"""So many evictions of a worker may have a short grace: an input fails once three workers left no report of it."""
MOST = 20
"""Problems that are printed."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of this mode."""
    add = parser.add_argument
    add("--members", type=int, default=50, help="inputs of about --seconds each")
    add("--inputs", type=int, help="so many trivial ones instead, without evictions")
    add("--at-once", type=int, default=16, help="max_concurrent of the batch")
    add("--per-pod", type=int, help="inputs_per_pod of the batch")
    add("--seconds", type=float, default=8.0)
    add("--evictions", type=int, default=20)
    add("--every", type=float, default=2.0, help="seconds between two, about")
    add("--store-away", type=float, help="seconds without answers of the bucket, in the middle")
    add("--api-away", type=float, help="seconds without answers of the API server")
    add("--faulty", type=float, default=0.0, help="share of the bucket's requests that get a 503")
    add("--kill-submitter", action="store_true", help="and collect in another process")
    add("--seed", type=int, default=1)


@dataclass
class Soak:
    """A batch, and what is known of it without Kinetic."""

    ground: Ground
    server: GcsServer
    given: argparse.Namespace
    group: str = ""
    per_worker: int = 1
    evicted: Counter[int] = field(default_factory=Counter)
    """How often each worker was."""
    broken: Counter[int] = field(default_factory=Counter)
    """How often each was while its function ran."""
    safe: set[int] = field(default_factory=set)
    """Inputs that had an outcome when their worker was evicted."""
    pods: set[str] = field(default_factory=set)
    away: list[threading.Timer] = field(default_factory=list)
    facts: dict[str, object] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)

    @property
    def prefix(self) -> str:
        """The prefix of its objects in the bucket."""
        return f"groups/{self.group}/"

    def run(self) -> None:
        """Submit, evict, collect, and look."""
        given, place, variables = self.given, self.ground.place, {"IMAGE": self.ground.image}
        if given.faulty:
            how = {"status": 503, "probability": given.faulty, "seed": given.seed}
            self.server.faults.add(bucket="jobs", **how)
        first = client = place.submit({**vars(given), "run": None}, variables)
        eventually(lambda: client.message("group") or client.process.poll() is not None)
        self.group = first.message("group") or ""
        assert self.group, client.errors
        if given.kill_submitter:
            first.process.kill()
            first.end(5)
            plan = {"group": self.group, "inputs": given.inputs, "kill_submitter": False}
            client = place.submit(plan, variables)
        manifest = json.loads(self.server.read("jobs", f"{self.prefix}manifest.json"))
        self.per_worker = manifest["per_worker"]
        try:
            self._disturb(client)
        finally:
            for timer in self.away:
                timer.join()
        client.end(5)
        print(client.errors, file=sys.stderr)
        for each in (*first.messages, *(client.messages if client is not first else ())):
            if "measured" in each:
                self.facts[each["measured"]] = f"{each['seconds']:.1f} s, {each['peak']:.0f} MiB"
        self._check(client)
        self._check_rest()

    def _disturb(self, client: Submitter) -> None:
        """Look at the pods and evict some, until the client has ended."""
        rng = random.Random(self.given.seed)
        while client.process.poll() is None:
            with suppress(subprocess.TimeoutExpired):
                client.process.wait(rng.uniform(0, 2 * self.given.every))
            with suppress(UnavailableError, HTTPError):
                self._look(rng)

    def _look(self, rng: random.Random) -> None:
        found = [PodView(pod) for pod in self.ground.cluster.list("Pod", labels=of_job(self.group))]
        self.pods |= {pod.uid for pod in found}
        given, names = self.given, self.server.names("jobs", f"{self.prefix}jobs/")
        ended = {int(name.split("/")[3]) for name in names if name.endswith("/outcome.json")}
        if not self.away and len(ended) > (given.inputs or given.members) / 3:
            self._begin_outage()
        alive = [
            pod
            for pod in found
            if pod.phase in ("Pending", "Running")
            and "deletionTimestamp" not in pod.manifest["metadata"]
        ]
        if not alive or given.inputs or self.evicted.total() >= given.evictions:
            return
        pod = rng.choice(alive)
        worker = pod.host
        own = range(worker * self.per_worker, (worker + 1) * self.per_worker)
        marks = Counter(what for what, index, _ in self._marks() if index in own)
        grace = rng.choice(GRACES) if self.evicted[worker] < SHORTENED else None
        try:
            self.ground.bed.evict(self.ground.namespace, pod.name, grace=grace)
        except AssertionError as error:
            if "NotFound" not in f"{error}":  # Otherwise it ended by itself at this moment.
                raise
            return
        self.evicted[worker] += 1
        self.broken[worker] += marks["ran"] - marks["ended"] > self.broken[worker]
        self.safe |= ended & {*own}

    def _marks(self) -> list[tuple[str, int, float]]:
        """Return the marks that the function wrote: `ran` or `ended`, the index of the input, and when."""
        return [
            (mark.split("-")[0], int(job_id.rpartition("-")[2]), stored.created)
            for stored in self.server.objects("marks")
            for job_id, _, mark in [stored.name.partition("/")]
        ]

    def _begin_outage(self) -> None:
        given, here = self.given, [self.ground.bed.folder, "kube-apiserver"]
        if given.store_away:
            fault = self.server.faults.add(bucket="jobs", held=True, reset="before")

            def end() -> None:
                fault.times = 0
                fault.release()
                self.facts["requests without an answer"] = fault.hits

            self.away.append(threading.Timer(given.store_away, end))
        if given.api_away:
            send(*here, signal.SIGSTOP)
            self.away.append(threading.Timer(given.api_away, send, [*here, signal.SIGCONT]))
        for timer in self.away:
            timer.start()

    def _check(self, client: Submitter) -> None:
        """Look at the values, and at what ran."""
        count = self.given.inputs or self.given.members
        if client.process.returncode:
            self.problems.append(f"the client failed: {client.errors[-3000:]}")
        for name in ("values", "again"):
            if wrong := wrong_of(client.message(name), count):
                self.problems.append(f"{name}: {len(wrong)} lost or wrong: {wrong[:MOST]}")
        ran, ended = defaultdict[int, list[float]](list), Counter[int]()
        for what, index, at in self._marks():
            if what == "ran":
                ran[index].append(at)
            else:
                ended[index] += 1
        outcomes, written = defaultdict[int, list[float]](list), Counter[str]()
        stored = self.server.requests.matching(
            name=f"{self.prefix}jobs/*", method="POST", status=200
        )
        for request in stored:
            written[request.name.rpartition("/")[2]] += 1
            if request.name.endswith("/outcome.json"):
                outcomes[int(request.name.split("/")[3])].append(request.time + request.seconds)
        for x in range(count):
            if not ended[x] or len(outcomes[x]) != 1:
                self.problems.append(
                    f"{x} ended {ended[x]} times, with {len(outcomes[x])} outcomes"
                )
            if any(at > min(outcomes[x], default=at) for at in ran[x]):
                self.problems.append(f"{x} ran again after it had an outcome")
            if len(ran[x]) > 1 + self.evicted[x // self.per_worker]:
                self.problems.append(f"{x} ran {len(ran[x])} times, without so many evictions")
        again = {x: times for x, times in ended.items() if times > 1}
        self.facts |= {
            "inputs, of a worker": f"{count}, {self.per_worker}",
            "pods": len(self.pods),
            "evictions, of workers": f"{self.evicted.total()}, {len(self.evicted)}",
            "evictions in the function": self.broken.total(),
            "inputs with an outcome whose worker was evicted": len(self.safe),
            "attempts claimed": written["host-0.claim"],
            "attempts whose function began": sum(map(len, ran.values())),
            "attempts reported": written["host-0.json"],
            "right values": count - len(wrong_of(client.message("values"), count)),
            "inputs that succeeded more than once": again or 0,
            "requests to the bucket": len(self.server.requests),
            "503": self.server.requests.count(status=503),
        }

    def _check_rest(self) -> None:
        """Look at what is left."""
        kept = {f"{self.prefix}{name}.json" for name in ("manifest", "outcome")}
        if left := set(self.server.names("jobs", self.prefix)) - kept:
            self.problems.append(f"left in the bucket: {sorted(left)[:MOST]}")
        with self.ground.place.entered():
            kinetic.attach_batch(self.group).cleanup()
        if names := self.server.names("jobs", self.prefix):
            self.problems.append(f"left in the bucket after a clean-up: {names[:MOST]}")
        with suppress(AssertionError):
            eventually(lambda: not self.ground.objects(self.group), 60, every=0.5)
        if found := self.ground.objects(self.group):
            self.problems.append(f"left: {[one['metadata']['name'] for one in found]}")


def wrong_of(values: list[object] | None, count: int) -> list[int]:
    """Return the inputs whose value is not what plain Python gives."""
    return [x for x in range(count) if (values or [])[x : x + 1] != [x * x]]


def run(given: argparse.Namespace) -> int:
    """Run one batch, print a table, return whether anything was wrong."""
    began, command = time.monotonic(), " ".join(sys.argv[1:])
    with (
        tempfile.TemporaryDirectory(prefix="soak-") as folder,
        prepared(Path(folder), BATCH) as ground,
        # Tests of others would fail while the API server is away.
        locked(ground.bed.folder, "node") if given.api_away else nullcontext(),
    ):
        shutil.copy(SCRIPT, ground.place.folder / "project")
        assert ground.place.server is not None
        soak = Soak(ground, ground.place.server, given)
        try:
            soak.run()
        except Exception as error:
            soak.problems.append(f"{type(error).__name__}: {error}")
    if soak.problems:
        print_failure(soak.problems[:MOST], soak.group, command, None)
    facts = soak.facts | {"all of it": f"{time.monotonic() - began:.0f} s"}
    print("| | |", "|---|---|", *(f"| {name} | {fact} |" for name, fact in facts.items()), sep="\n")
    return bool(soak.problems)
