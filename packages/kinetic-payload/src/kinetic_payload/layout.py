"""Names that client and runner share: objects in a store, flags, environment variables and exit codes."""

from __future__ import annotations

import re
from typing import Final

from kinetic_payload.frozen import frozen

WIRE_VERSION: Final = 1
"""The version of records and payload headers. A reader refuses a greater version with an error."""
MODULES_VERSION: Final = 2
"""Incremented when a module of `kinetic_payload` that the light part of `kinetic` imports is moved.

A runner uses an installed `kinetic` only if it was made for the modules of the runner's bundle.
"""
WIRE_LINE: Final = f"WIRE_VERSION = {WIRE_VERSION}  # modules {MODULES_VERSION}"
"""The line of `kinetic/_wire.py` by which a runner recognises a `kinetic` that it can use."""


@frozen()
class JobObjects:
    """The names of the objects of a job in its store: of a single job, a batch or a member of one.

    A batch has the id of its group. Its members have no record and no payload of their own, but those of the batch.
    """

    job_id: str

    @property
    def prefix(self) -> str:
        """The prefix of all objects that clean-up of the job removes.

        Indexes are zero-padded, so that a list of members is in their order.
        """
        group, index = group_of(self.job_id)
        if group is None:
            return f"{self.job_id}/"
        return group_prefix(group) + ("" if index is None else f"jobs/{index:06d}/")

    @property
    def handle(self) -> str:
        """The job record; the manifest of a batch."""
        group, _ = group_of(self.job_id)
        return (
            f"{self.job_id}/handle.json" if group is None else f"{group_prefix(group)}manifest.json"
        )

    @property
    def payload(self) -> str:
        """The call: a JSON header, then a pickle."""
        group, _ = group_of(self.job_id)
        return f"{self.prefix if group is None else group_prefix(group)}payload.pkl"

    @property
    def outcome(self) -> str:
        """The final outcome; created only if missing, so the first writer wins.

        Once a batch has one, no further member is started. It has none if all of its members ran.
        """
        return f"{self.prefix}outcome.json"

    @property
    def lease(self) -> str:
        """The heartbeat of the supervisor that keeps the job, on whichever machine."""
        return f"{self.prefix}lease.json"

    @property
    def members(self) -> str:
        """The prefix of the members of a batch."""
        return f"{self.prefix}jobs/"

    @property
    def readers(self) -> str:
        """The prefix of the objects of those who collect the values of a batch at this moment."""
        return f"{self.prefix}readers/"

    def loaded(self, key: str) -> str:
        """Which data in the store a worker of a batch has loaded from the Hub, for the `Data` with this key."""
        return f"{self.prefix}loaded/{key}.json"

    def inputs(self, number: int) -> str:
        """An object with inputs of a batch: their sizes and digests as a line of JSON, then their pickles."""
        return f"{self.prefix}inputs/{number:05d}"

    @property
    def attempts(self) -> str:
        """The prefix of all attempts."""
        return f"{self.prefix}attempts/"

    def claim(self, attempt: int, host: int) -> str:
        """The claim of the process that runs this attempt on this host; created only if missing."""
        return f"{self.attempts}{attempt}/host-{host}.claim"

    def gathered(self, attempt: int) -> str:
        """The leader's statement that all hosts have claimed this attempt, so that they may begin."""
        return f"{self.attempts}{attempt}/gathered.json"

    def joining(self, attempt: int, host: int) -> str:
        """Exists once this host is about to join the others with JAX; empty."""
        return f"{self.attempts}{attempt}/host-{host}.joining"

    def host_outcome(self, attempt: int, host: int) -> str:
        """How this attempt ended for this host; JSON."""
        return f"{self.attempts}{attempt}/host-{host}.json"

    def host_value(self, attempt: int, host: int) -> str:
        """A larger value, or the exception object if it can be pickled; created only if missing."""
        return f"{self.attempts}{attempt}/host-{host}.pkl"

    @property
    def logs(self) -> str:
        """The prefix of the durable log; clean-up of the job leaves it."""
        return f"logs/{self.job_id}/"

    @property
    def summary(self) -> str:
        """What clean-up keeps of the job beside its log. A list of `logs/` finds it as one of `LISTED`."""
        return f"{self.logs}outcome.json"

    def log_chunks(self, attempt: int, host: int) -> str:
        """The prefix of the durable log of one host of one attempt."""
        return f"logs/{self.job_id}/{attempt}/host-{host}/"

    def log_chunk(self, attempt: int, host: int, seq: int) -> str:
        """One chunk of a log. The number is zero-padded, so that names sort in the order of writing."""
        return f"{self.log_chunks(attempt, host)}{seq:08d}"

    def usage(self, attempt: int, host: int) -> str:
        """What one host of one attempt used over time; it lives as long as the log."""
        return f"logs/{self.job_id}/{attempt}/host-{host}.usage"

    @property
    def pending(self) -> str:
        """Reasons for which the job was pending, recorded by clients; it lives as long as the log."""
        return f"{self.logs}pending.json"

    @property
    def outputs(self) -> str:
        """The default of `KINETIC_OUTPUT_DIR`; clean-up never touches it."""
        return f"outputs/{self.job_id}/"


LISTED: Final = ("handle.json", "outcome.json")
"""The records that a list of jobs needs: `Store.records` finds them without listing other objects."""

PATHWAYS_SCRATCH: Final = "pathways-scratch"
"""The folder for temporary files of the components of Pathways, without a slash at its end."""

BUILD_LOGS: Final = "builds/logs"
"""The folder of the logs of image builds, without a slash at its end; each is `log-BUILD_ID.txt`."""

LOGS: Final = "logs/"
"""The prefix of all logs."""

GROUPS: Final = "groups/"
"""The prefix of all batches."""

RESERVED_PREFIXES: Final = (
    LOGS,
    "contexts/",
    "data/",
    "data-markers/",
    GROUPS,
    "outputs/",
    "builds/",
)
"""The first parts of names in a store that are not job ids."""


PARTS: Final = "contexts/parts/"
"""The prefix of the parts of large projects, with a folder for each name of a project."""


def context_object(digest: str) -> str:
    """Return the name of the snapshot of a project with this tree digest."""
    return f"contexts/{digest}.zip"


def context_parts(digest: str) -> str:
    """Return the name of the list of the parts of a large project with this tree digest."""
    return f"contexts/{digest}.json"


def context_part(owner: str) -> str:
    """Return the name of one of the parts; *owner* is `PROJECT/DIGEST`, with 8 digits for the name of the project."""
    return f"{PARTS}{owner}.zip"


def build_context(digest: str) -> str:
    """Return the name of the files of an image build, whose contents have this digest."""
    return f"builds/contexts/{digest}.tar.gz"


def build_log(build_id: str) -> str:
    """Return the name of the log of the image build *build_id*."""
    return f"{BUILD_LOGS}/log-{build_id}.txt"


def build_resolution(digest: str) -> str:
    """Return the name of the record of what an image is made of; *digest* is that of the request."""
    return f"builds/resolved/{digest}.json"


def build_claim(tag: str) -> str:
    """Return the name of the object that the process which builds the image *tag* holds."""
    return f"builds/claims/{tag}.json"


def build_record(tag: str, name: str) -> str:
    """Return the name of the object *name* beside the others about the build of the image *tag*."""
    return f"builds/images/{tag}/{name}"


def data_prefix(digest: str) -> str:
    """Return the prefix of the objects of one uploaded `Data`."""
    return f"data/{digest}/"


def data_pack(digest: str, number: int) -> str:
    """Return the name of an archive with small files of a packed `Data`."""
    return f"data/{digest}/packs/{number:05d}.zip"


def data_large(digest: str, number: int) -> str:
    """Return the name of a large file of a packed `Data`, which is an object of its own."""
    return f"data/{digest}/large/{number:05d}"


def data_files_prefix(digest: str) -> str:
    """Return the prefix of a `Data` that is mounted: each file is an object named by its path."""
    return f"data/{digest}/files/"


def data_marker(digest: str, *, mounted: bool = False) -> str:
    """Return the name of the marker of an uploaded `Data`, in one of its two forms; it is written last."""
    return f"data-markers/{digest}{'.files' if mounted else ''}"


def group_prefix(group_id: str) -> str:
    """Return the prefix of a batch's objects."""
    return f"{GROUPS}{group_id}/"


# The functions below recognise exactly the names that are built above. A folder store may hold other files:
# code that removes objects by their age, or by their folder, checks their names first.

MOST_ID: Final = 63
"""The most characters of a job id, which is a label value on Kubernetes."""
_JOB_ID: Final = (
    rf"(?=[a-z0-9-]{{1,{MOST_ID}}}(?:/|\Z))[a-z0-9]+(?:-[a-z0-9]+)*"
    r"-[0-9]{8}-[0-9]{6}-(?:[0-9a-f]{7}|[0-9a-f]{8}-[0-9]+)"
)
"""A single job, or a member of a batch."""
_MEMBER: Final = re.compile(r".*-[0-9]{8}-[0-9]{6}-([0-9a-f]{8})-(0|[1-9][0-9]*)")
_DIGEST: Final = r"[0-9a-f]{64}"
_NUMBER: Final = r"(?:0|[1-9][0-9]{0,8})"
_JOB_OBJECT: Final = (
    r"(?:(?:handle|outcome|lease)\.json|payload\.pkl"
    rf"|attempts/{_NUMBER}/(?:host-{_NUMBER}\.(?:claim|joining|json|pkl)|gathered\.json))"
)
_GROUP: Final = r"grp-[0-9a-f]{8}"
_GROUP_OBJECT: Final = rf"(?:(?:manifest|outcome|lease|loaded/d[0-9]+)\.json|payload\.pkl|readers/[0-9a-f]{{8}}|inputs/[0-9]{{5,}}|jobs/[0-9]{{6,}}/{_JOB_OBJECT})"
_CONTEXT: Final = rf"contexts/(?:{_DIGEST}\.(?:zip|json)|parts)"
_OWNERS: Final = {
    "context": rf"contexts/({_DIGEST})\.(?:zip|json)",
    "part": rf"contexts/parts/([0-9a-f]{{8}}/{_DIGEST})\.zip",
    "data": rf"data-markers/({_DIGEST})(?:\.files)?"
    rf"|data/({_DIGEST})/(?:packs/[0-9]{{5,}}\.zip|large/[0-9]{{5,}}|files/.+)",
    "log": rf"logs/({_JOB_ID})/(?:{_NUMBER}/host-{_NUMBER}(?:/[0-9]{{8,}}|\.usage)|(?:outcome|pending)\.json)",
    "output": rf"outputs/({_JOB_ID})/.+",
    "payload": rf"({_JOB_ID})/payload\.pkl|groups/({_GROUP})/payload\.pkl",
    "input": rf"groups/({_GROUP})/inputs/[0-9]{{5,}}",
    "value": rf"(?:({_JOB_ID})|groups/({_GROUP})/jobs/[0-9]{{6,}})/attempts/{_NUMBER}/host-{_NUMBER}\.pkl",
    "record": rf"({_JOB_ID})/{_JOB_OBJECT}|groups/({_GROUP})/{_GROUP_OBJECT}",
    "build_context": rf"builds/contexts/({_DIGEST})\.tar\.gz",
    "build_log": r"builds/logs/log-([^/]+)\.txt",
    "build_resolution": rf"builds/resolved/({_DIGEST})\.json",
    "build": r"builds/(?:claims/([^/]+)\.json|images/([^/]+)/.+)",
    "scratch": rf"{PATHWAYS_SCRATCH}/([^/]+).*",
}
"""By the kind of objects, their names; the group is what they belong to. The first that matches counts."""
_KIND: Final = "(?s)" + "|".join(f"(?P<{kind}>{names})" for kind, names in _OWNERS.items())
_ENTRY: Final = "|".join(
    (
        rf"{_JOB_ID}(?:/(?:(?:handle|outcome|lease)\.json|payload\.pkl|attempts))?",
        rf"contexts|{_CONTEXT}",
        rf"data(?:/{_DIGEST})?",
        rf"data-markers(?:/{_DIGEST}(?:\.files)?)?",
        rf"(?:logs|outputs)(?:/{_JOB_ID})?",
        rf"groups(?:/{_GROUP})?",
    )
)


def is_job_id(text: str) -> bool:
    """Tell whether *text* is the id of a job."""
    return re.fullmatch(_JOB_ID, text) is not None


def group_of(job_id: str) -> tuple[str | None, int | None]:
    """Return the group of a batch or of a member of one, and the index of the member; None for what it has not."""
    if is_group_id(job_id):
        return job_id, None
    found = _MEMBER.fullmatch(job_id)
    return (f"grp-{found[1]}", int(found[2])) if found else (None, None)


def is_group_id(text: str) -> bool:
    """Tell whether *text* is the id of a batch."""
    return re.fullmatch(_GROUP, text) is not None


def title_of(job_id: str) -> str:
    """Return how a message names a job or a batch: `Job cpu-fit-…`, `Batch grp-…`."""
    return f"{'Batch' if is_group_id(job_id) else 'Job'} {job_id}"


def is_run_id(text: str) -> bool:
    """Tell whether *text* is the id of what has a resource of its own: a single job or a batch."""
    return is_group_id(text) or (is_job_id(text) and group_of(text) == (None, None))


def number_in(text: str) -> int | None:
    """Return the number in *text*, a part of a name; None if it does not have the form of numbers in names."""
    return int(text) if re.fullmatch(_NUMBER, text) else None


def host_outcome_of(name: str, job_id: str) -> tuple[int, int] | None:
    """Return attempt and host of the host outcome *name* of a job; None if it is not one."""
    return _place_in(name, job_id, "json")


def claim_of(name: str, job_id: str) -> tuple[int, int] | None:
    """Return attempt and host of the claim *name* of a job; None if it is not one."""
    return _place_in(name, job_id, "claim")


def _place_in(name: str, job_id: str, kind: str) -> tuple[int, int] | None:
    own = JobObjects(job_id).attempts
    found = re.fullmatch(rf"({_NUMBER})/host-({_NUMBER})\.{kind}", name[len(own) :])
    return (int(found[1]), int(found[2])) if found and name.startswith(own) else None


def is_digest(text: str) -> bool:
    """Tell whether *text* is a digest."""
    return re.fullmatch(_DIGEST, text) is not None


def is_job_object(name: str, job_id: str) -> bool:
    """Tell whether *name* is an object of the job *job_id*, which clean-up removes."""
    own = JobObjects(job_id).prefix
    pattern = _GROUP_OBJECT if is_group_id(job_id) else _JOB_OBJECT
    return name.startswith(own) and re.fullmatch(pattern, name[len(own) :]) is not None


def is_listed(name: str) -> bool:
    """Tell whether *name* is a record of a job, of a member of a batch, or beside a log, that a list needs."""
    within = re.sub(rf"{GROUPS}{_GROUP}/jobs/|^{LOGS}", "", name, count=1)
    return within.partition("/")[2] in LISTED


def kind_of(name: str) -> tuple[str, str] | None:
    """Return the kind of the object *name*, such as `context`, `data` or `log`, and the id of what it belongs to.

    That is a digest, or a job or batch; data and its markers have one kind. None if Kinetic gives no such name.
    """
    found = re.fullmatch(_KIND, name)
    if found is None:
        return None
    # The group of the kind is closed last; those of the other kinds are empty.
    owner = next(filter(None, found.groups()[found.lastindex or 0 :]))
    return str(found.lastgroup), owner


def is_entry(path: str) -> bool:
    """Tell whether *path*, one or two levels below a store's root, may be an object or folder of Kinetic."""
    return re.fullmatch(_ENTRY, path) is not None


class Flag:
    """The runner's command line: which job, and what its record does not say."""

    STORE = "--store"
    JOB = "--job"
    RECORD_DIGEST = "--record-digest"
    """The digest of the job's record as it is stored: the runner uses no other."""
    WORKSPACE = "--workspace"
    IDLE = "--idle-after-report"
    """Wait for SIGTERM instead of exiting, because the system would start an ended container again."""
    # A supervisor gives the following flags as well.
    ATTEMPT = "--attempt"
    LIFELINE = "--lifeline"
    GRACE = "--grace"
    PENDING_UPLOADS = "--pending-uploads"
    """A folder that outlives the job, for objects that still have to be stored."""
    REPORT_SECONDS = "--report-seconds"
    """For how long storing the job's value and outcome is retried."""


class Env:
    """Environment variables that client and runner share. The client's own settings are not here."""

    JOB_ID = "KINETIC_JOB_ID"
    ATTEMPT = "KINETIC_ATTEMPT"
    HOST_INDEX = "KINETIC_HOST_INDEX"
    HOST_COUNT = "KINETIC_HOST_COUNT"
    RESTART_ATTEMPT = "KINETIC_RESTART_ATTEMPT"
    """On several hosts: how many times all of them were restarted. The downward API takes it from the
    annotation `jobset.sigs.k8s.io/restart-attempt`, which JobSet puts on its pods."""
    BATCH_INDEX = "KINETIC_BATCH_INDEX"
    """The index of the input that a member of a batch has."""
    BATCH_SIZE = "KINETIC_BATCH_SIZE"
    BATCH_WORKER = "KINETIC_BATCH_WORKER"
    """Which worker of a batch this is: it runs the inputs from `BATCH_WORKER * per_worker` on."""
    BATCH_WORKERS = "KINETIC_BATCH_WORKERS"
    """Numbers of workers, separated by commas: then `BATCH_WORKER` is the place of one among them."""
    OUTPUT_DIR = "KINETIC_OUTPUT_DIR"
    HOME = "KINETIC_HOME"
    COORDINATOR = "KINETIC_COORDINATOR_ADDRESS"
    HOST_NAMES = "KINETIC_HOST_NAMES"
    """The names in DNS of all hosts, in their order, separated by commas."""
    ACCELERATOR = "KINETIC_ACCELERATOR"
    DEVICES = "KINETIC_DEVICES"
    """The devices that JAX must find on this host, at least: `PLATFORM:NUMBER`, `tpu:4` or `gpu:1` for instance.
    Under Pathways the devices of all hosts. Unset where no accelerator is expected."""
    NODE_NAME = "KINETIC_NODE_NAME"
    """The name of the node; the downward API takes it from `spec.nodeName`."""
    POD_NAME = "KINETIC_POD_NAME"
    """The name of the pod; the downward API takes it from `metadata.name`. A pod on the network of its node has the
    node's host name."""
    PATHWAYS = "KINETIC_PATHWAYS"
    """Set under Pathways: the tag of the images of its components, `jax-0.10.0` for instance."""
    SIGNING_KEY = "KINETIC_SIGNING_KEY"
    """In hexadecimal; the runner removes it before user code runs."""
    INDEX_NETRC = "KINETIC_INDEX_NETRC"
    """The contents of a netrc file for private package indexes; the runner removes it before user code runs."""
    PACKAGE_CACHE = "KINETIC_PACKAGE_CACHE"
    """A folder for uv's cache that the pods of a node share; used if it can be written."""
    PACKAGES = "KINETIC_PACKAGES"
    """The folder of the packages that the job installed when it started. Those of the image come after it."""
    STORAGE_ENDPOINT = "KINETIC_STORAGE_ENDPOINT"
    """The address of the bucket service, if it is not Google's own address; with the same credentials."""


HOST_INDEX_SOURCES: Final = (
    Env.HOST_INDEX,
    "JOB_COMPLETION_INDEX",
    "TPU_WORKER_ID",
    "LWS_WORKER_INDEX",
)
"""Variables with the index of a host. The first that is set counts; Kinetic's manifests set `HOST_INDEX`."""

END_MARKER: Final = "[kinetic:end]"
"""How an `end_marker` begins."""


def end_marker(job_id: str, attempt: int, host: int) -> str:
    """Return the line, without its end, that a runner prints last, after it has stored its outcome."""
    return f"{END_MARKER} {job_id} attempt {attempt} host {host}"


def is_end_marker(line: str, job_id: str) -> bool:
    """Return whether *line*, with or without its end, is an `end_marker` of the job."""
    start = f"{END_MARKER} {job_id} attempt "
    attempt, _, host = line.rstrip("\r\n").removeprefix(start).partition(" host ")
    numbers = attempt.isdigit() and host.isdigit()
    return line.startswith(start) and line.isascii() and numbers


RAISED: Final = "[kinetic] The function raised an exception. Lines of its traceback: "
"""How the line of a host's log begins after which the traceback of the function's exception follows; then their number."""

MARK: Final = "\x10"
"""The character (DLE) that marks the streams in a log, where a host's output and errors are one. Terminals ignore it. At
the end of a line, the line goes on in the next one of the same stream. Output that has it has it twice."""
STDERR_MARK: Final = f"{MARK}\x02"
"""How the lines of standard error begin."""

RUNNER_PATH: Final = "/app/remote_runner.py"
"""The path of the bundle in a container."""

RUNNER_NAME: Final = "remote_runner.py"

MOUNTS: Final = "/kinetic/data"
"""The folder in a container for mounted data without a mount path, in a subfolder for each key."""

EXIT_SUCCESS: Final = 0
EXIT_FUNCTION_FAILED: Final = 1
EXIT_NOT_PREPARED: Final = 2
EXIT_BAD_NODE: Final = 4
"""The accelerator of this node could not be initialised: the attempt is no failure of the function."""
EXIT_TERMINATED: Final = 143

GRACE_SECONDS: Final = 30.0
"""Seconds between SIGTERM and SIGKILL; the default of Kubernetes."""

DEBUG_PORT: Final = 5678
"""The port of debugpy in a pod, on the loopback interface of the leader."""

REPORT_SECONDS: Final = 3600.0
"""For how long storing a job's value and outcome is retried while its store fails."""

INLINE_LIMIT: Final = 64 * 1024
"""Bytes of a pickled value or exception that is stored inside a host outcome."""
