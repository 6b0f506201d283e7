from __future__ import annotations

import io
from pathlib import Path
from typing import Any, cast

import pytest

from kinetic.provisioning.clusters import Prepared
from kinetic.provisioning.desired import ClusterPlace
from kinetic.provisioning.plan import Plan, Resource, Step
from kinetic.provisioning.prices import Prices
from kinetic_cli.output import Output
from kinetic_cli.plans import show_plan
from kinetic_servers.stub_jobs import run

NODES = ["v6e-16", "--node-pool"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["v6e-8:flex-start"], "Say that with the options"),
        (["v6e-8", "--reservation", ""], "not the name of a reservation"),
        (["v6e-8", "--fallback", "l4"], "cannot stand in for v6e-8"),
        (["v6e-8", "--fallback", "v6e-9"], "no slice of 9 chips"),
        (["v5p-16", "--min-nodes", "3"], "no whole number of slices"),
        (["tpu7x-64"], "gcloud compute resource-policies create workload-policy"),
        (["v6e-8:spot", "--on-demand"], "--spot and --on-demand exclude each other"),
        (["v6e-8", "--spot", "--flex-start"], "--spot and --flex-start exclude each other"),
        (["v6e-8", "--no-fallback", "--fallback", "v5e-8"], "exclude each other"),
        (["v6e-8", "--max-nodes", "2"], "A ComputeClass has no limit of machines"),
        (["v6e-8", "--slices", "2"], "A ComputeClass has no limit of machines"),
        ([*NODES, "--min-nodes", "8", "--max-nodes", "4"], "At least 8 machines are to be kept"),
        ([*NODES, "--min-nodes", "2"], "2 machines are no whole number of slices"),
        ([*NODES, "--max-nodes", "6"], "6 machines are no whole number of slices"),
        ([*NODES, "--max-nodes", "4", "--slices", "2"], "2 slices have 8 machines"),
        ([*NODES, "--spot", "--reservation", "r"], "--spot and --reservation exclude each other"),
        ([*NODES, "--flex-start", "--min-nodes", "4"], "lent for a job"),
        ([*NODES, "--fallback", "v6e-16:spot"], "Leave --fallback out"),
        (["tpu7x-64", "--node-pool"], "gcloud compute resource-policies create workload-policy"),
        (["cpu", "--node-pool"], "gcloud container node-pools create"),
    ],
)
def test_a_pool_that_cannot_be_made_is_refused_before_a_cluster_is_asked(
    tmp_path: Path, arguments: list[str], message: str
) -> None:
    ran = run("pool", "add", "--accelerator", *arguments, home=tmp_path)

    assert message in ran.stderr
    assert ran.exit_code != 0


def test_the_plan_of_a_node_pool_shows_its_limits_and_what_kept_machines_cost() -> None:
    settings = {"machines": "v6e-16", "min_nodes": 4, "max_nodes": 4}
    steps = [
        Step("create", Resource(kind="node pool", name=name, settings={**settings, **more}))
        for name, more in (("kept", {}), ("idle", {"min_nodes": 0}))
    ]
    place = ClusterPlace(project="p", location="us-central1", cluster="c")
    prepared = Prepared(place, Plan(tuple(steps)), {}, *cast("Any", [None] * 3))
    out = io.StringIO()

    show_plan(Output(out), prepared, Prices("us-central1"))

    _, kept, idle = out.getvalue().splitlines()
    assert "  $31,536  " in kept
    assert kept.endswith("node pool kept: v6e-16, 4 to 4 machines")
    assert "  $43.20/h in use  " in idle
