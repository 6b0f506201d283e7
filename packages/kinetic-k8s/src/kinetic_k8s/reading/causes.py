"""Causes by the words in which Kubernetes, GKE and Kueue report them, and what to do about each.

A rule is a pattern of these words, an identifier of the cause for programs, and the remedy. Seen with
Kubernetes 1.34, JobSet 0.12, LeaderWorkerSet 0.10 and Kueue 0.19. Words that no rule matches are shown
without a remedy.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

QUEUE: Final = "kueue.x-k8s.io/queue-name"
"""The label that names the LocalQueue of a job."""


@dataclass(frozen=True)
class Diagnosis:
    """A cause, with the message of the component that reports it."""

    cause: str
    """An identifier for programs: `unschedulable`, `image`, `out-of-memory` and so on."""
    reason: str
    remedy: str = ""
    """What to do. Empty unless the rule that found the cause knows it."""

    def of(self, who: str) -> Diagnosis:
        """Return the same cause, with *who* is affected before the reason."""
        return Diagnosis(self.cause, f"{who}{self.reason}", self.remedy)


Rules = Sequence[tuple[str, str, str]]
MISSING_OBJECT: Final = "Create it, or correct its name in pod_overrides."
_ARCHITECTURE: Final = "Build the image for the machine's architecture as well."


def explained(
    reason: str, text: str, rules: Rules, otherwise: str = "", **facts: str
) -> Diagnosis | None:
    """Return the cause of the first of *rules* that matches *text*, with *reason*.

    If none matches, the cause is *otherwise*, without a remedy; None if that is empty. Remedies contain
    the groups of their pattern by number, and *facts* by name.
    """
    for pattern, cause, remedy in rules:
        if found := re.search(pattern, text):
            return Diagnosis(cause, reason, remedy.format(*found.groups(), **facts))
    return Diagnosis(otherwise, reason) if otherwise else None


PASSES: Final = ("insufficient", "occupied", "scaling-up", "gated", "closed")
"""Causes that may go away by themselves. If hosts wait for several reasons, the others come first."""

BY_SCHEDULER: Final = (
    (r'persistentvolumeclaim "[^"]+" not found', "volume", MISSING_OBJECT),
    (r"unbound immediate", "volume", "See why its claim has no disk yet: kubectl describe pvc"),
    # The scheduler lists all causes with the number of their nodes. A node that only lacks room fits otherwise.
    (
        r"Insufficient [\w./-]",
        "insufficient",
        "Wait until other jobs end, request less, or add nodes.",
    ),
    (
        r"anti-affinity rules|Too many pods",
        "occupied",
        "Wait until other jobs end, or add a node pool of the same kind: a slice runs one job at a time.",
    ),
    (
        r"node affinity/selector",
        "no-node",
        "If the cluster has such a node (kubectl get nodes -l {labels}), it is drained, tainted or not ready yet. To get "
        "one, {add}",
    ),
    (
        r"were unschedulable|untolerated taint",
        "closed",
        "Wait if nodes are new, drained or upgraded. Otherwise add nodes that are not cordoned and have no such taint.",
    ),
)
"""Why the scheduler finds no node, before the words `preemption:`."""

BY_AUTOSCALER: Final = (
    (
        r"^pod triggered scale-up",
        "scaling-up",
        "Wait: a new node takes minutes, and a TPU slice may take longer.",
    ),
    (
        r"max (?:node group size|cluster .* limit) reached",
        "pool-full",
        "Wait until other jobs end, or raise the maximum size of the node pool.",
    ),
    # The texts of events/failed_scale_up in GKE's autoscaler, or the Compute API's own code.
    (
        r"quota exceeded|QUOTA_EXCEEDED",
        "cloud-quota",
        "Ask for a larger quota of the project{zones}, or choose another region or accelerator.",
    ),
    (
        r"out of resources|RESOURCE_POOL_EXHAUSTED|stockout|does not have enough resources",
        "stock-out",
        "Google has no such machine free{zones} at present. The autoscaler keeps trying: wait, or use "
        "a reservation, another zone or another accelerator.",
    ),
    (r"failed", "scale-up-failed", ""),
)
"""What the autoscaler reports about a pod without a node."""

BY_API_SERVER: Final = (
    (
        r'serviceaccount "([^"]+)" not found',
        "service-account",
        "Create it: kubectl create serviceaccount {0}. Or name another.",
    ),
    (
        r"exceeded quota: ",
        "quota",
        "Wait until other pods of the namespace end, or ask for a larger quota.",
    ),
    (
        r"failed quota: [^:]*: must specify ([\w.,/ -]+)",
        "quota",
        "The namespace's quota requires that pods request {0}: set cpu= and memory=.",
    ),
    (
        r"violates PodSecurity",
        "pod-security",
        "The namespace's policy forbids such pods: use another namespace, or have the policy changed.",
    ),
)
"""What the API server replies to the creation of a pod."""

BY_KUBELET: Final = {
    "ErrImagePull": (
        (r"no match for platform", "image", _ARCHITECTURE),
        (
            r"(?i)forbidden|denied|unauthorized|\bstatus(?: code)?:? 40[13]\b",
            "image",
            "Let the service account of the cluster's nodes read that registry.",
        ),
        (r"(?i)not found", "image", "Check the name and the tag of the image {image!r}."),
        (r"", "image", ""),
    ),
    "InvalidImageName": ((r"", "image-name", "Correct the image's name."),),
    "CreateContainerError": ((r"", "container", ""),),
    "RunContainerError": ((r"", "container", ""),),
}
"""Why a container waits, by the kubelet's reason."""

BY_MOUNT: Final = (
    (
        r"gcsfuse\S* not found in the list of registered CSI drivers",
        "volume",
        "Enable the Cloud Storage FUSE CSI driver of the cluster, or leave fuse=True out.",
    ),
)
"""Why the kubelet cannot mount a volume."""

EVICTED: Final = (
    (
        r'EmptyDir volume "shared-memory"',
        "evicted",
        "Use less shared memory, or set a larger shared_memory=.",
    ),
    (r"low on resource: memory", "evicted", "Request the memory that the job needs: set memory=."),
    (
        r"storage|EmptyDir|disk|inodes",
        "evicted",
        "Write less to the local disk: large files belong in a bucket.",
    ),
)
"""Why the kubelet evicted a pod."""

NOT_STARTED: Final = (
    (
        r'exec: "([^"]+)": (?:executable file not found|stat )',
        "no-program",
        "The image has no program {0!r}: use an image that has it.",
    ),
    (r"exec format error", "architecture", _ARCHITECTURE),
)
"""Why the program of a container could not be started."""

WRITTEN: Final = (
    (
        r"(cloudpickle|google-cloud-storage)(?: is not installed|(?<=No module named 'cloudpickle)')",
        "image-requirements",
        "Install {0} in the image.",
    ),
)
"""What the runner, or Python itself, writes if an image lacks what the runner needs."""

IN_QUEUE: Final = (
    (
        r"LocalQueue (\S+) doesn't exist",
        "queue-missing",
        f"Name a LocalQueue of the job's namespace in the label {QUEUE}.",
    ),
    (
        r"ClusterQueue \S+ (?:doesn't exist|is inactive)|LocalQueue \S+ is inactive",
        "queue-inactive",
        "The queue admits no jobs at present: ask its administrator, or use another queue.",
    ),
    (
        r"resource (\S+) unavailable in ClusterQueue",
        "queue-without-resource",
        "The queue has no quota for {0}, so the job cannot start: use another queue, or have {0} added.",
    ),
    (
        r"insufficient quota for (\S+) in flavor",
        "queue-too-small",
        "The job requests more of {0} than the queue ever has for it: request less, or use another queue.",
    ),
)
"""What Kueue reports about a job that waiting does not help."""
