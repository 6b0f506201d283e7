"""`kinetic accelerators`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from kinetic_cli.app import App
from kinetic_cli.options import complete_accelerators, json_option, target_options

if TYPE_CHECKING:
    from kinetic_k8s.accelerators import Accelerator


@click.command("accelerators")
@click.argument("name", required=False, shell_complete=complete_accelerators)
@click.option("--kind", type=click.Choice(["cpu", "gpu", "tpu"]), help="List only this kind.")
@click.option("--all", "every", is_flag=True, help="List every shape of the large TPU slices, too.")
@target_options(hidden=True)
@json_option
@click.pass_obj
def command(app: App, name: str | None, kind: str | None, every: bool, as_json: bool) -> None:
    """List the accelerators, or explain NAME, or list those whose names begin with it.

    NAME is what @kinetic.run(accelerator=…) takes: v5e-8, tpu-v5p-2x2x4, l4x4, gpu:4, cpu:8, …:spot; or the
    beginning of one: v5.
    """
    from kinetic_k8s.accelerators import catalogue, names_of, parse_accelerator
    from kinetic_k8s.errors import UnknownAcceleratorError

    one, found = None, list(catalogue(every_shape=every))
    if name is not None:
        try:
            one = parse_accelerator(name)
        except UnknownAcceleratorError:
            start = name.lower()
            found = [
                each for each in found if any(known.startswith(start) for known in names_of(each))
            ]
            if not found:
                raise
    found = [one] if one else [each for each in found if kind in (None, each.kind)]
    if as_json:
        app.output.json([_facts(each) for each in found] if one is None else _facts(one))
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
    from kinetic_k8s.accelerators import names_of

    names = names_of(accelerator)
    return {
        "name": names[0],
        "kind": accelerator.kind,
        "devices": accelerator.devices,
        "topology": getattr(accelerator, "topology", None),
        "hosts": accelerator.hosts,
        "devices_per_host": accelerator.devices // accelerator.hosts,
        "machine_type": getattr(accelerator, "machine_type", None),
        "label": getattr(accelerator, "label", None),
        "spot": accelerator.spot,
        "aliases": [each for each in names[1:] if not each.startswith(f"{accelerator.kind}-")],
    }
