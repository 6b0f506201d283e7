from __future__ import annotations

from pathlib import Path

import pytest

from kinetic_servers.stub_jobs import run


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
    ],
)
def test_a_pool_that_cannot_be_made_is_refused_before_a_cluster_is_asked(
    tmp_path: Path, arguments: list[str], message: str
) -> None:
    ran = run("pool", "add", "--accelerator", *arguments, home=tmp_path)

    assert message in ran.stderr
    assert ran.exit_code != 0
