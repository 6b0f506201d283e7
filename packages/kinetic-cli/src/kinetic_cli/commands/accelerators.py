"""`kinetic accelerators`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from kinetic_cli.app import App
from kinetic_cli.options import json_option, target_options

if TYPE_CHECKING:
    from kinetic_k8s.accelerators import Accelerator


@click.command("accelerators")
@click.argument("name", required=False)
@click.option("--kind", type=click.Choice(["cpu", "gpu", "tpu"]), help="List only this kind.")
@click.option("--all", "every", is_flag=True, help="List every shape of the large TPU slices, too.")
@target_options(hidden=True)
@json_option
@click.pass_obj
def command(app: App, name: str | None, kind: str | None, every: bool, as_json: bool) -> None:
    """List the accelerators, or explain NAME.

    NAME is what @kinetic.run(accelerator=…) takes: v5e-8, tpu-v5p-2x2x4, l4x4, gpu:4, cpu:8, …:spot.
    """
    from kinetic_k8s.accelerators import catalogue, parse_accelerator

    found = (
        (parse_accelerator(name),)
        if name is not None
        else tuple(
            each for each in catalogue(every_shape=every) if kind is None or each.kind == kind
        )
    )
    if as_json:
        app.output.json([_facts(each) for each in found] if name is None else _facts(found[0]))
        return
    app.output.table(
        ["name", "kind", "devices", "topology", "hosts", "machine", "label", "also"],
        (
            (
                facts["name"],
                facts["kind"],
                facts["devices"],
                facts["topology"],
                facts["hosts"],
                facts["machine_type"],
                facts["label"],
                ", ".join(facts["aliases"]),
            )
            for facts in map(_facts, found)
        ),
    )


def _facts(accelerator: Accelerator) -> dict[str, Any]:
    return {
        "name": str(accelerator),
        "kind": accelerator.kind,
        "devices": accelerator.devices,
        "topology": getattr(accelerator, "topology", None),
        "hosts": accelerator.hosts,
        "devices_per_host": accelerator.devices // accelerator.hosts,
        "machine_type": getattr(accelerator, "machine_type", None),
        "label": getattr(accelerator, "label", None),
        "spot": accelerator.spot,
        "aliases": _aliases(accelerator),
    }


def _aliases(accelerator: Accelerator) -> list[str]:
    from kinetic_k8s.accelerators import Gpu, Tpu
    from kinetic_k8s.accelerators.gpus import GPU_BY_NAME
    from kinetic_k8s.accelerators.tpus import TPU_BY_NAME

    name = str(accelerator)
    match accelerator:
        case Gpu(name=kind):
            others = GPU_BY_NAME[kind].aliases
        case Tpu(generation=kind):
            others = TPU_BY_NAME[kind].aliases
        case _:
            return []
    return [other + name.removeprefix(kind) for other in others]
