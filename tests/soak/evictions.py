"""Evictions of the pods of jobs on the test bed, and whether what follows is right."""

from __future__ import annotations

import argparse
import json
import random
import re
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from tests.soak.places import Place, Submitter, print_failure
from urllib3.exceptions import HTTPError

from kinetic.testing import eventually
from kinetic_k8s.cluster.client import ApiServer
from kinetic_k8s.manifests.labels import JOB_ID, of_job
from kinetic_k8s.reading.attempts import PodView
from kinetic_payload.errors import UnavailableError
from kinetic_payload.layout import claim_of, host_outcome_of

ROOT = Path(__file__).parents[2]
sys.path += [str(ROOT / ".ci"), str(ROOT / "tests" / "cluster")]

import pods  # noqa: E402
from bed import Bed, start  # noqa: E402
from images import REQUIREMENTS, image_of  # noqa: E402

HELD: dict[str, dict[str, str]] = {
    "before the claim": {"method": "POST", "name": "attempts/*/host-{host}.claim"},
    "during the download": {"operation": "objects.get.media", "name": "payload.pkl"},
    "while the value is stored": {"method": "POST", "name": "attempts/*/host-0.pkl"},
    "before the report": {"method": "POST", "name": "attempts/*/host-{host}.json"},
    "between report and outcome": {"method": "POST", "name": "outcome.json"},
}
"""The request that the bucket holds at each moment; it is lost afterwards."""
LAST = "after the outcome"
MOMENTS = ("at random", "in the function", "in the function", *HELD, LAST)
OF_LEADER = ("while the value is stored", "between report and outcome", LAST)
GRACES = (None, None, 5, 1, 0)
"""Seconds of grace; None: those of the pod, 30."""
SECONDS = 900.0
"""For a job to end: Kubernetes waits 10, 20, 40, 80 and 160 s before it replaces a pod."""
SCRIPT = Path(__file__).parent / "projects" / "evicted.py"
KINDS = ("Job", "JobSet", "Pod", "Secret", "Service")
LOST = re.compile("may be missing|did not arrive|broke off:|are left out")
"""Texts of the log where it has a gap."""


@dataclass(frozen=True)
class Eviction:
    """When a pod is evicted, and how."""

    moment: str
    host: int
    grace: int | None
    delay: float
    late: bool
    """Whether what the bucket holds is released only when the pod is gone."""


@dataclass(frozen=True)
class Plan:
    """One job and its evictions; the same for the same seed and number."""

    number: int
    hosts: int
    way: str
    attached: int
    """Before which eviction the job is attached to."""
    fails: bool
    on_sigterm: str
    lines: int
    size: int
    evictions: tuple[Eviction, ...]

    def __str__(self) -> str:
        evictions = ", ".join(
            f"{e.moment} + {e.delay:.1f} s (host {e.host}, grace {e.grace})" for e in self.evictions
        )
        job = f"{self.hosts} host(s), {self.way}, SIGTERM: {self.on_sigterm or 'default'}"
        return f"{job}{', fails once' if self.fails else ''}; {evictions or 'no eviction'}"


def draw(seed: int, number: int, hosts: int | None, moments: Sequence[str]) -> Plan:
    """Choose a job and its evictions, at one of *moments* each."""
    rng = random.Random(f"{seed}-{number}")
    drawn = 2 if rng.random() < 0.15 else 1
    hosts = hosts or drawn

    def eviction() -> Eviction:
        moment = rng.choice(moments)
        delay = {"at random": 5.0, "in the function": 2.0, LAST: 0.2}.get(moment, 0.3)
        host = 0 if moment in OF_LEADER else rng.randrange(hosts)
        late = rng.random() < 0.5
        return Eviction(moment, host, rng.choice(GRACES), rng.uniform(0, delay), late)

    count = rng.choices(range(6), (0, 1, 2, 2, 2, 1))[0]
    evictions = sorted((eviction() for _ in range(count)), key=lambda each: each.moment == LAST)
    while len(evictions) > 1 and evictions[-2].moment == LAST:
        evictions.pop()
    large = any(each.moment == "while the value is stored" for each in evictions)
    return Plan(
        number=number,
        hosts=hosts,
        way=rng.choice(["call", "await", "attach", "attach", "attach"]),
        attached=rng.randrange(len(evictions) + 2),
        fails=rng.random() < 0.3,
        on_sigterm=rng.choice(["", "", "exits", "returns", "ignores"]),
        lines=rng.randrange(1, 60),
        size=300_000 if large else 1000,
        evictions=tuple(evictions),
    )


@dataclass
class Evicted:
    """A pod that was evicted."""

    moment: str
    name: str
    host: int
    restarts: int | None


@dataclass
class Facts:
    """What is known of a job without Kinetic, and what Kinetic reports."""

    evicted: list[Evicted] = field(default_factory=list)
    claims: dict[tuple[int, int], dict[str, Any]] = field(default_factory=dict)
    """The claims and reports that were seen in the bucket, by attempt and host."""
    ends: dict[tuple[int, int], dict[str, Any]] = field(default_factory=dict)
    marks: dict[tuple[str, int, int], float] = field(default_factory=dict)
    """Marks that the function wrote: `ran`, `failed`, `ended`; with attempt and host, and when each was seen."""
    outcomes: int = 0
    reported: dict[str, Any] = field(default_factory=dict)
    log: list[str] = field(default_factory=list)

    def attempts_of(self, pod: Evicted) -> set[int]:
        """Return the attempts that a pod had claimed; of several hosts, all share their restarts."""
        return {
            n
            for (n, _), one in self.claims.items()
            if one["hostname"] == pod.name or one.get("restarts") == pod.restarts is not None
        }

    def end_of(self, pod: Evicted) -> str:
        """Return how the attempt of an evicted pod ended."""
        attempts = self.attempts_of(pod)
        if not any((n, pod.host) in self.claims for n in attempts):
            return "not begun"
        reasons = {self.ends[n, pod.host]["reason"] for n in attempts if (n, pod.host) in self.ends}
        return "reported" if "terminated" in reasons else "had ended" if reasons else "no report"


def problems_of(plan: Plan, facts: Facts) -> Iterator[str]:
    """Iterate over all problems of a job."""
    reported = facts.reported
    if reported.get("right") is not True:
        yield f"no right value: {reported.get('error', reported)}"
    if facts.outcomes != 1:
        yield f"{facts.outcomes} outcomes were written"
    evicted = set().union(*map(facts.attempts_of, facts.evicted))
    failed = {n for what, n, _ in facts.marks if what == "failed"}
    begun = {n for n, _ in facts.claims} | {n for _, n, _ in facts.marks}
    if without := begun - evicted - failed - {max(begun, default=0)}:
        yield f"attempts {without} were followed by another one without a reason"
    if len(failed) != plan.fails:
        yield f"the function failed in the attempts {failed}"
    if "reports" in reported:
        yield from report_problems(facts, evicted, failed)
    yield from log_problems(plan, facts)


def report_problems(facts: Facts, evicted: set[int], failed: set[int]) -> Iterator[str]:
    """Iterate over what is wrong in the attempts that `outcome()` reports."""
    reasons: dict[int, set[str]] = {}
    last = max(n for n, *_ in facts.reported["reports"])
    for n, host, reason, phase, hostname in facts.reported["reports"]:
        reasons.setdefault(n, set()).add(reason)
        word = f"attempt {n} of host {host}: {reason} in {phase} on {hostname}"
        # A claim names the pod, a report the host name of its container, if any: both are the same for a Job.
        if not facts.claims.get((n, host), {}).get("hostname", "").startswith(hostname):
            yield f"{word}, but it was not claimed there"
        if (phase in ("call", "report")) != (("ran", n, host) in facts.marks):
            yield f"{word}, but the function ran in {sorted(facts.marks)}"
        true = {
            "returned": ("ended", n, host) in facts.marks,
            "exception": ("failed", n, host) in facts.marks,
            "terminated": n in evicted | failed,
        }
        if not true.get(reason):
            yield f"{word}, which is not true: {sorted(facts.marks)}, evicted {sorted(evicted)}"
    if facts.reported["status"] != "SUCCEEDED" or "returned" not in reasons[last]:
        yield f"{facts.reported['status']}, but attempt {last}: {reasons[last]}"
    own = {n for n, found in reasons.items() if "exception" in found}
    if failed - evicted - own:
        yield f"the failure of attempt {failed} is not reported"
    message = facts.reported["message"]
    numbers = {word: set(map(int, re.findall(rf"Attempt (\d+) {word}", message)))
               for word in ("failed", "was preempted")}  # fmt: skip
    if numbers["failed"] != own - {last}:
        yield f"the message about failures is not true: {message!r}, {reasons}"
    preempted = {n for n, found in reasons.items() if "terminated" in found} - own
    single = all(host == 0 for _, host in facts.claims)
    if not numbers["was preempted"] <= preempted or (
        single and numbers["was preempted"] != preempted
    ):
        yield f"the message about preemptions is not true: {message!r}, {reasons}"


def log_problems(plan: Plan, facts: Facts) -> Iterator[str]:
    """Iterate over what is wrong in the log that was followed."""
    lines = [re.sub(r"^\[host \d\] ", "", line) for line in facts.log]
    found = [
        found for line in lines if (found := re.fullmatch(r"(line|left) (\d+) (\d) ?(\d*)", line))
    ]
    doubled = [line for line, count in Counter(one[0] for one in found).items() if count > 1]
    begins = Counter(
        int(one[2])
        for line in lines
        if (one := re.search(r"Attempt (\d+) ended.*Attempt (\d+) begins", line))
    )
    if doubled or any(count > 1 for count in begins.values()):
        yield f"lines of the log came twice: {doubled} {begins}"
    if any(LOST.search(line) for line in lines):
        return
    attempts = [int(one[2]) for one in found]
    first = min((*attempts, *begins), default=0)
    if attempts != sorted(attempts) or not set(attempts) - {first} <= set(begins):
        yield f"the attempts in the log are not in order: {sorted(set(attempts))}, {begins}"
    pairs = {(int(one[2]), int(one[3])) for one in found}
    for n, host in pairs | {
        (n, host) for what, n, host in facts.marks if what == "ran" and n >= first
    }:
        own = [one for one in found if (int(one[2]), int(one[3])) == (n, host)]
        numbers = [int(one[4]) for one in own if one[1] == "line"]
        if numbers != list(range(len(numbers))):
            yield f"lines of attempt {n} of host {host} are not there: {numbers}"
        end = facts.ends.get((n, host))
        if end and (not own or own[-1][1] != "left"):
            yield f"the last line of attempt {n} of host {host} is not there, which ended: {end['reason']}"
        if end and end["reason"] == "returned" and len(numbers) != plan.lines:
            yield f"attempt {n} of host {host} printed {plan.lines} lines: {numbers}"


class Round:
    """One job in a namespace of the test bed, whose pods are evicted."""

    def __init__(self, ground: Ground, plan: Plan) -> None:
        assert ground.place.server is not None
        self.ground = ground
        self.server = ground.place.server
        self.plan = plan
        self.facts = Facts()
        self.problems: list[str] = []
        self.job_id = ""
        self._collector: Submitter | None = None
        self._variables = {"IMAGE": ground.image}
        self._evicted: set[str] = set()
        self._least = 0
        """The restarts of a slice that was not evicted yet."""

    def run(self) -> None:
        """Submit, evict, collect, and look."""
        ground = self.ground
        with ExitStack() as stack:
            accelerator = "cpu"
            if self.plan.hosts > 1:
                accelerator = stack.enter_context(ground.bed.new_slice(self.plan.hosts))
                priority = stack.enter_context(ground.bed.new_priority())
                self._variables |= {"PRIORITY": priority, "JAX_PLATFORMS": "cpu"}
            stack.callback(ground.delete, self.plan.number)
            self._run({**asdict(self.plan), "accelerator": accelerator})

    def _run(self, given: dict[str, Any]) -> None:
        plan = self.plan
        client = self._client({**given, "way": "submit" if plan.way == "attach" else plan.way})
        self._collector = client if plan.way != "attach" else None
        self._wait(lambda: self.job_id or client.message("error"))
        assert self.job_id, client.messages
        for number in range(len(plan.evictions) + 2):
            if self._collector is None and plan.attached <= number:
                client.end(60)
                self._collector = self._client({**given, "job": self.job_id})
            for planned in plan.evictions[number : number + 1]:
                while not (self._is_over() or self._evict(planned)):
                    continue
            if number == len(plan.evictions):
                self._wait(self._is_over)
        collector = self._collector
        assert collector is not None
        self._wait(lambda: collector.process.poll() is not None)
        collector.end(5)
        for each in collector.messages:
            self.facts.reported |= each
        self.facts.log = [*collector.log, *collector.errors.splitlines()]
        self.facts.outcomes = self._outcomes()
        self.problems += problems_of(plan, self._known())
        left = self.server.names("jobs", f"{self.job_id}/")
        if left:
            self.problems.append(f"left in the bucket: {left}")
        self._wait(lambda: not self.ground.objects(self.job_id))

    def _client(self, plan: dict[str, Any]) -> Submitter:
        return self.ground.place.submit(plan, self._variables)

    def _evict(self, planned: Eviction) -> bool:
        """Evict the next pod at its moment; return whether that was done, before the pod had ended."""
        view = self._wait(lambda: self._next_pod(planned.host) or self._is_over())
        if not isinstance(view, PodView):
            return False
        pod = Evicted(planned.moment, view.name, view.host, view.restarts)
        fault = None
        if planned.moment in HELD:
            held = HELD[planned.moment]
            name = f"{self.job_id}/{held['name'].format(host=planned.host)}"
            what = {**held, "name": name, "held": True, "reset": "before"}
            fault = self.server.faults.add(**what, times=1)

        def has_come() -> object:
            if planned.moment == "in the function":
                return any(
                    ("ran", n, pod.host) in self.facts.marks for n in self.facts.attempts_of(pod)
                )
            if planned.moment == LAST:
                return self._is_over()
            return fault is None or fault.hits

        try:
            self._wait(lambda: has_come() or not self._lives(view) or self._is_over())
            eventually(lambda at=time.monotonic() + planned.delay: time.monotonic() > at)
            if has_come() and self._lives(view):
                self.ground.bed.evict(self.ground.namespace, pod.name, grace=planned.grace)
                self.facts.evicted.append(pod)
                self._evicted.add(view.uid)
                self._least = (view.restarts or 0) + 1
                if planned.late:
                    # The kubelet may be slow, or be restarted by other tests.
                    with suppress(AssertionError):
                        self._wait(lambda: not self._lives(view, ending=True), 60)
        except HTTPError:
            return False  # The cluster does not respond.
        except AssertionError as error:
            if "NotFound" not in f"{error}":  # Otherwise it ended by itself at this moment.
                raise
        finally:
            if fault is not None:
                fault.times = 0
                fault.release()
        return view.uid in self._evicted

    def _next_pod(self, host: int) -> PodView | None:
        """Return the pod of *host* that follows the one that was evicted, once it is there."""
        for pod in self.ground.pods(self.plan.number):
            new = pod.uid not in self._evicted and (
                pod.restarts is None or pod.restarts >= self._least
            )
            if new and pod.host == host and self._lives(pod):
                return pod
        return None

    def _lives(self, pod: PodView, *, ending: bool = False) -> bool:
        """Return whether a pod is there and has not ended; *ending*: even if it is being deleted."""
        return any(
            one.phase in ("Pending", "Running")
            and (ending or "deletionTimestamp" not in one.manifest["metadata"])
            for one in self.ground.pods(self.plan.number)
            if one.uid == pod.uid
        )

    def _is_over(self) -> bool:
        return self._outcomes() > 0

    def _outcomes(self) -> int:
        """Return how many outcomes were written; clean-up may have removed them since."""
        name = f"{self.job_id}/outcome.json"
        return self.server.requests.count(method="POST", name=name, status=200)

    def _wait(self, holds: Callable[[], Any], seconds: float = SECONDS) -> Any:
        """Wait until something holds, and collect facts meanwhile: clean-up removes them."""

        def found() -> Any:
            try:
                return (self._known(), self._is_over(), holds())[-1]
            except UnavailableError:  # Other tests may stop the cluster.
                return None

        return eventually(found, seconds, every=0.1)

    def _known(self) -> Facts:
        """Return the facts, with what was added to the bucket."""
        facts = self.facts
        if not self.job_id:
            for pod in self.ground.pods(self.plan.number):
                self.job_id = str(pod.labels[JOB_ID])
            return facts
        for stored in self.server.objects("jobs", f"{self.job_id}/attempts/"):
            for parse, found in ((claim_of, facts.claims), (host_outcome_of, facts.ends)):
                place = parse(stored.name, self.job_id)
                if place is not None and place not in found:
                    found[place] = json.loads(stored.content.read())
        for name in self.server.names("marks", f"{self.job_id}/"):
            what, attempt, host = name.rpartition("/")[2].split("-")
            facts.marks.setdefault((what, int(attempt), int(host)), time.monotonic())
        return facts


@dataclass(frozen=True)
class Ground:
    """A namespace of the test bed and a project whose jobs run there."""

    bed: Bed
    namespace: str
    cluster: ApiServer
    place: Place
    image: str

    def pods(self, number: int) -> list[PodView]:
        """Return the pods of the job with this number."""
        return list(map(PodView, self.cluster.list("Pod", labels=f"soak={number}")))

    def objects(self, job_id: str) -> list[Any]:
        """Return all objects of a job."""
        return [one for kind in KINDS for one in self.cluster.list(kind, labels=of_job(job_id))]

    def delete(self, number: int) -> None:
        """Delete the job with this number, which is there if its round was broken off."""
        label = f"soak={number}"
        self.bed.kubectl(
            "delete", "jobs,jobsets", "--wait=false", "-n", self.namespace, "-l", label
        )


@contextmanager
def prepared(folder: Path, script: Path = SCRIPT) -> Iterator[Ground]:
    """Start the test bed unless it runs, and prepare a namespace, an image and a bucket for pods of *script*."""
    bed = start()
    image = image_of(bed, folder / "image", REQUIREMENTS)
    host = bed.environment["KUBE_BED_HOST"]
    with (
        Place(folder / "place", "bucket", script=script, host=host) as place,
        bed.new_namespace() as name,
    ):
        assert place.server is not None
        place.server.create_bucket("marks")
        shutil.copy(pods.__file__, place.folder / "project")
        place.environment |= {
            "KUBECONFIG": bed.kubeconfig,
            "KINETIC_BACKEND": "gke",
            "KINETIC_KUBE_CONTEXT": "kube-bed",
            "KINETIC_NAMESPACE": name,
        }
        yield Ground(bed, name, ApiServer(bed.access(name)), place, image)


def run(given: argparse.Namespace) -> int:
    """Run the rounds that were asked for, print a table, return whether any failed."""
    began = time.monotonic()
    command = f"evictions --seed {given.seed}{f' --hosts {given.hosts}' if given.hosts else ''}"
    command += "".join(f" --moment '{moment}'" for moment in given.moment or ())
    with tempfile.TemporaryDirectory(prefix="soak-") as folder, prepared(Path(folder)) as ground:

        def run_one(number: int) -> Round | None:
            if time.monotonic() - began > 60 * given.minutes:
                return None
            one = Round(ground, draw(given.seed, number, given.hosts, given.moment or MOMENTS))
            try:
                one.run()
            except Exception as error:
                one.problems.append(f"{type(error).__name__}: {error}")
            _report(one, command)
            return one

        with ThreadPoolExecutor(given.at_once) as pool:
            numbers = range(given.first, given.first + given.rounds)
            rounds = [one for one in pool.map(run_one, numbers) if one is not None]
    print(_table(rounds))
    right = sum(one.facts.reported.get("right") is True for one in rounds)
    evicted = sum(len(one.facts.evicted) for one in rounds)
    seconds = time.monotonic() - began
    print(f"{len(rounds)} jobs, {evicted} evictions, {right} right values, {seconds:.0f} s")
    return any(one.problems for one in rounds)


def _report(one: Round, command: str) -> None:
    plan, facts = one.plan, one.facts
    ends = ", ".join(f"{pod.moment}: {facts.end_of(pod)}" for pod in facts.evicted)
    print(
        f"{plan.number} {one.job_id} {plan} → {ends or 'no eviction'}", file=sys.stderr, flush=True
    )
    if one.problems:
        print_failure(one.problems, one.job_id, command, plan.number)
        print(*facts.log, f"{facts}", sep="\n", file=sys.stderr, flush=True)


def _table(rounds: list[Round]) -> str:
    ends = ("not begun", "reported", "no report", "had ended")
    lines = [f"| evicted | evictions | {' | '.join(ends)} |", "|---|---|---|---|---|---|"]
    found = [(pod.moment, one.facts.end_of(pod)) for one in rounds for pod in one.facts.evicted]
    for moment in [*dict.fromkeys(MOMENTS), "all"]:
        those = Counter(end for at, end in found if moment in (at, "all"))
        figures = " | ".join(str(those[end]) for end in ends)
        lines.append(f"| {moment} | {those.total()} | {figures} |")
    return "\n".join(lines)
