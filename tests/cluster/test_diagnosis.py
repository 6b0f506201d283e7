"""Why jobs do not run, on a real cluster that is given several causes at once; `tests/kinetic_k8s/reading` has more, recorded."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

from kinetic_k8s.accelerators import parse_accelerator
from kinetic_k8s.cluster.client import ApiServer
from kinetic_k8s.cluster.watch import Watch, Watched
from kinetic_k8s.manifests.job import JobSpec
from kinetic_k8s.manifests.labels import of_job
from kinetic_k8s.manifests.pod import MountedFile, Resources
from kinetic_k8s.manifests.spec import WorkloadSpec
from kinetic_k8s.manifests.volumes import fuse_volumes
from kinetic_k8s.reading.causes import Diagnosis
from kinetic_k8s.reading.diagnosis import diagnosis_of, event_fields
from kinetic_payload.data.references import DataRef
from kinetic_payload.stores.store import Location

Make = Callable[..., JobSpec]
DATA = DataRef(
    key="d0", kind="gcs", source="gs://bucket/", is_dir=True, name="", fuse=True, mount="/data"
)
SMALL = Resources(cpu="50m", memory="64Mi")

CAUSES: dict[str, tuple[dict[str, Any], tuple[str, str, str]]] = {
    # What is wrong with the pod → the cause, a part of its reason, a part of the remedy.
    "no-node": (
        {"accelerator": parse_accelerator("h100"), "resources": Resources()},
        ("no-node", "didn't match Pod's node affinity/selector", "kinetic pool add --accelerator h100"),
    ),
    "image-name": ({"image": "Kinetic:1"}, ("image-name", "couldn't parse image name", "Correct the image's name")),
    "secret": (
        {"environment_secret": "not-there"},
        ("missing-object", "The Secret 'not-there' does not exist", "correct its name in pod_overrides"),
    ),
    "config-map": (
        {"files": (MountedFile(config_map="kn-runner-x", key="r.py", path="/app/r.py"),)},
        ("missing-object", "The ConfigMap 'kn-runner-x' does not exist", "Submit the job again"),
    ),
    "driver": (
        {"volumes": fuse_volumes([DATA], Location("gs", "jobs"))},
        ("volume", "gcsfuse.csi.storage.gke.io not found", "Enable the Cloud Storage FUSE CSI driver"),
    ),
    "memory": (
        {"command": ("python3", "-c", "b'x' * 300_000_000"), "resources": SMALL},
        ("out-of-memory", "its limit of 64Mi", "try memory='128Mi'"),
    ),
}  # fmt: skip


def diagnose(cluster: ApiServer, spec: WorkloadSpec) -> Diagnosis | None:
    """Diagnose a job from its workload, its pods, and at most two lists of events."""
    workload = cluster.get(spec.kind, spec.name)
    if workload is None:
        return None
    pods = cluster.list("Pod", labels=of_job(spec.pod.job_id))
    events = [
        event
        for fields in event_fields(workload, pods)
        for event in cluster.list("Event", fields=fields)
    ]
    return diagnosis_of(workload, pods, events)


def test_each_cause_is_reported_with_the_message_of_the_cluster_and_a_remedy(
    cluster: ApiServer, a_job: Make
) -> None:
    specs = {}
    for name, (wrong, _) in CAUSES.items():
        specs[name] = a_job("pass", **{"grace": timedelta(seconds=1), **wrong})
        cluster.create(specs[name].manifest())
    found: dict[str, Diagnosis | None] = {}
    missing = set(CAUSES)

    # Some causes are reported by events only.
    kinds = [Watched(kind=kind) for kind in ("Pod", "Job", "Event")]
    with Watch(cluster, kinds) as watch:
        while missing:
            assert watch.wait(120), {name: found[name] for name in missing}
            found |= {name: diagnose(cluster, specs[name]) for name in missing}
            missing = {
                name
                for name, (_, (cause, *_)) in CAUSES.items()
                if (seen := found[name]) is None or seen.cause != cause
            }
    for spec in specs.values():
        cluster.delete("Job", spec.name)

    for name, (_, (_, reason, remedy)) in CAUSES.items():
        diagnosis = found[name]
        assert diagnosis is not None
        assert reason in diagnosis.reason
        assert remedy in diagnosis.remedy, diagnosis
