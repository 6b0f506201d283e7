"""Whether a cluster has a node pool for a job, before the job is submitted.

Only a cluster whose pools are all known, and which adds none by itself, can decide that.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from kinetic_k8s.accelerators.types import Accelerator, Cpu, Gpu, Tpu
from kinetic_k8s.manifests.placement import placement_of

_HARD: Final = ("NoSchedule", "NoExecute")


@dataclass(frozen=True, kw_only=True)
class NodePool:
    """A group of equal machines of a cluster."""

    name: str
    machine_type: str
    tpu_topology: str = ""
    """Empty: its machines form no slice of several hosts, or `placement_policy` contains the topology."""
    placement_policy: str = ""
    """The workload policy that its machines use, as those of tpu7x slices do; empty: none."""
    accelerators: Mapping[str, int] = field(default_factory=dict)
    """Type of GPU, as in `cloud.google.com/gke-accelerator` → GPUs of one machine."""
    spot: bool = False
    """Whether its machines are spot machines; preemptible ones are not, and have another label."""
    max_nodes: int | None = None
    """None: unknown. The GKE API gives no present number of a pool that is not scaled automatically."""
    taints: tuple[tuple[str, str, str], ...] = ()
    """Key, value and effect (`NoSchedule`) of each."""
    made_for: str = ""
    """What Kinetic made it for, as a priority of a pool: `v6e-8:spot`; empty: others made it."""
    min_nodes: int = 0
    problem: str = ""
    """What GKE says of a pool that it could not complete; empty: it could."""

    def __str__(self) -> str:
        gpus = [f"{count} × {kind}" for kind, count in self.accelerators.items()]
        what = [self.machine_type, *gpus]
        if self.tpu_topology:
            what.append(self.tpu_topology)
        if self.spot:
            what.append("spot")
        return f"{self.name} ({', '.join(what)})"


def missing(accelerator: Accelerator, pools: Sequence[NodePool]) -> str:
    """Return that none of *pools* fits a job on *accelerator*, with the nearest one and the reason; empty if one fits."""
    match accelerator:
        case Gpu():
            pools = [pool for pool in pools if accelerator.label in pool.accelerators]
        case Tpu():
            wanted = accelerator.machine_type
            family = f"{wanted.partition('-')[0]}-"
            alike = [pool for pool in pools if pool.machine_type.startswith(family)]
            pools = sorted(alike, key=lambda pool: pool.machine_type != wanted)
    obstacles = [(pool, _obstacle(accelerator, pool)) for pool in pools]
    if not obstacles:
        return "There is no such node pool."
    if any(not obstacle for _, obstacle in obstacles):
        return ""
    pool, obstacle = obstacles[0]
    return f"There is no such node pool. The pool {pool} does not fit: {obstacle}."


def needs_policy(accelerator: Accelerator) -> bool:
    """Return whether machines of *accelerator* need a workload policy, which GKE makes for no ComputeClass."""
    is_7x = isinstance(accelerator, Tpu) and accelerator.generation == "tpu7x"
    return is_7x and accelerator.multi_host


def class_command(accelerator: Accelerator) -> str:
    """Return the command that adds a pool for jobs on *accelerator*, or a node pool if no pool can be for them."""
    if needs_policy(accelerator):
        return pool_command(accelerator)
    name = str(replace(accelerator, spot=False))
    return f"kinetic pool add --accelerator {name}{' --spot' * accelerator.spot}"


def pool_command(
    accelerator: Accelerator, cluster: str = "CLUSTER", location: str = "LOCATION"
) -> str:
    """Return the command that adds a node pool for jobs on *accelerator* to *cluster*, without machines at first.

    The user replaces words in capitals. https://cloud.google.com/sdk/gcloud/reference/container/node-pools/create
    """
    zone = location if location.count("-") == 2 else "ZONE"
    command = (
        f"gcloud container node-pools create POOL --cluster={cluster} --location={location} --node-locations={zone} "
        f"--num-nodes=0 --enable-autoscaling --max-nodes={accelerator.hosts} --machine-type="
    )
    command += "MACHINE" if isinstance(accelerator, Cpu) else accelerator.machine_type
    if isinstance(accelerator, Gpu):
        command += f" --accelerator=type={accelerator.label},count={accelerator.count},gpu-driver-version=default"
    # GKE refuses a topology for a slice on one machine.
    if isinstance(accelerator, Tpu) and accelerator.multi_host:
        command += f" --tpu-topology={accelerator.topology}"
        if needs_policy(accelerator):
            command = (
                "gcloud compute resource-policies create workload-policy POLICY --type=HIGH_THROUGHPUT "
                f"--accelerator-topology={accelerator.topology} --region=REGION && {command} --placement-policy=POLICY"
            )
    return command + " --spot" * accelerator.spot


def _obstacle(accelerator: Accelerator, pool: NodePool) -> str:
    """Return why *pool* cannot run a job on *accelerator*; empty if it can."""
    hosts = accelerator.hosts
    if isinstance(accelerator, Gpu) and pool.accelerators[accelerator.label] != accelerator.count:
        return f"the number of GPUs of each machine is {pool.accelerators[accelerator.label]}"
    if isinstance(accelerator, Tpu):
        if pool.machine_type != accelerator.machine_type:
            return f"its machine type is {pool.machine_type}"
        wanted = accelerator.topology if accelerator.multi_host else ""
        known = pool.tpu_topology or not pool.placement_policy
        if known and pool.tpu_topology not in {wanted, accelerator.topology}:
            return f"its topology is {pool.tpu_topology or 'that of one machine'}"
    if accelerator.spot and not pool.spot:
        return "its machines are not spot machines"
    if pool.max_nodes is not None and pool.max_nodes < hosts:
        return f"it has at most {pool.max_nodes} machines"
    # A processor job fits machines with accelerators, too: GKE taints those with GPUs only if it has others.
    tolerated = {each["key"] for each in placement_of(accelerator).tolerations}
    for key, value, effect in pool.taints:
        if effect in _HARD and key not in tolerated:
            return f"its machines have the taint {key}{f'={value}' if value else ''}:{effect}"
    return ""
