"""`JobRecord`: the record of a submitted job."""

from __future__ import annotations

from dataclasses import field

from kinetic_payload.frozen import frozen
from kinetic_payload.layout import WIRE_VERSION


@frozen(kw_only=True)
class Keeper:
    """The `KINETIC_HOME` that keeps a local job, and the machine that it is on."""

    home: str
    """Its absolute path."""
    machine: str
    """The host's name."""
    boot: str = ""
    """The boot id of the machine's kernel; empty if it is not known."""
    inode: str = ""
    """Device and inode of the home, which distinguish it from another one at the same path."""


@frozen(kw_only=True)
class JobRecord:
    """A submitted job: `{job}/handle.json`. The first 17 fields are those of `JobHandle`."""

    job_id: str
    backend: str
    project: str
    cluster_name: str
    zone: str
    namespace: str
    bucket_name: str
    k8s_name: str
    image_uri: str
    accelerator: str
    func_name: str
    display_name: str
    created_at: str
    group_id: str | None = None
    group_kind: str | None = None
    group_index: int | None = None
    debug: bool = False
    payload_digest: str = ""
    context_digest: str | None = None
    environment_digest: str | None = None
    """The tree digest of packages that the runner installs: an archive like that of a project, with a
    `pylock.toml` and the wheels that no index has. None: the environment has all that the function needs."""
    hosts: int = 1
    retries: int = 0
    timeout: float | None = None
    output_dir: str | None = None
    captured_env: tuple[str, ...] = ()
    """Names only; values are never persisted."""
    settings: dict[str, str] | None = None
    """Settings of libraries in the submitting process, which the job applies: see `process_settings`."""
    labels: dict[str, str] = field(default_factory=dict)
    client: str = ""
    """Versions of `kinetic` and of Python that submitted it."""
    submitter: str | None = None
    """Who submitted it, and where: `ada.laptop`; None in records from before this field."""
    kube_context: str | None = None
    """The context of the submitter's kubeconfig; None if the cluster is found by its name."""
    preemptions: int | None = None
    """How many attempts may be lost to disruptions; None for no limit."""
    spot: bool | None = None
    workload: str | None = None
    """The kind of its resource on a cluster, such as `Job`; None for a local job."""
    pathways_tag: str | None = None
    """The tag of Pathways' components that fits the image, if it is known."""
    keeper: Keeper | None = None
    """Which home knows whether a local job runs; None in records from before this field."""
    signature: str | None = None
    version: int = WIRE_VERSION
