"""Names of accelerators, and the machines of Google's tables that they mean."""

from __future__ import annotations

import re
from math import prod

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kinetic_k8s.accelerators import (
    Cpu,
    Gpu,
    Tpu,
    catalogue,
    describe,
    parse_accelerator,
)
from kinetic_k8s.accelerators.gpus import GPU_TYPES
from kinetic_k8s.accelerators.tpus import TPU_GENERATIONS
from kinetic_k8s.errors import UnknownAcceleratorError

EVERYTHING = catalogue(every_shape=True)


def tpu(text: str) -> Tpu:
    found = parse_accelerator(text)
    assert isinstance(found, Tpu)
    return found


def gpu(text: str) -> Gpu:
    found = parse_accelerator(text)
    assert isinstance(found, Gpu)
    return found


@pytest.mark.parametrize(
    ("text", "topology", "machine", "hosts"),
    [
        ("tpu-v5e-1", "1x1", "ct5lp-hightpu-1t", 1),
        ("tpu-v5litepod-4", "2x2", "ct5lp-hightpu-4t", 1),
        ("v5litepod", "2x2", "ct5lp-hightpu-4t", 1),
        ("tpu", "2x2", "ct5lp-hightpu-4t", 1),
        ("v5e-16", "4x4", "ct5lp-hightpu-4t", 4),
        ("v5e-256", "16x16", "ct5lp-hightpu-4t", 64),
        ("v6e-1", "1x1", "ct6e-standard-1t", 1),
        ("v6e-4", "2x2", "ct6e-standard-4t", 1),
        ("v6e-64", "8x8", "ct6e-standard-4t", 16),
        ("v4", "2x2x1", "ct4p-hightpu-4t", 1),
        ("v4-4096", "16x16x16", "ct4p-hightpu-4t", 1024),
        ("v5p-4", "2x2x1", "ct5p-hightpu-4t", 1),
        ("v5p", "2x2x2", "ct5p-hightpu-4t", 2),
        ("v5p-2x2x4", "2x2x4", "ct5p-hightpu-4t", 4),
        ("tpu7x-1", "1x1x1", "tpu7x-standard-1t", 1),
        ("tpu7x", "2x2x1", "tpu7x-standard-4t", 1),
        ("tpu-7x-64", "4x4x4", "tpu7x-standard-4t", 16),
        ("v3", "2x2", "ct3-hightpu-4t", 1),
        ("v3-1024", "32x32", "ct3p-hightpu-4t", 256),
        # It exists on one machine and on two: the one machine is meant.
        *((text, "2x4", "ct5lp-hightpu-8t", 1) for text in ("v5e-8", "v5e-2x4")),
        *((text, "2x4", "ct6e-standard-8t", 1) for text in ("v6e-8", "v6e-2x4", "v6e")),
        # The number counts chips, where other tools count cores.
        ("v4-8", "2x2x2", "ct4p-hightpu-4t", 2),
        ("v5p-8", "2x2x2", "ct5p-hightpu-4t", 2),
        ("tpu7x-8", "2x2x2", "tpu7x-standard-4t", 2),
        # Of several shapes, the most cube-like is meant.
        ("v4-256", "4x8x8", "ct4p-hightpu-4t", 64),
        ("v5p-384", "4x8x12", "ct5p-hightpu-4t", 96),
        ("v5p-1728", "12x12x12", "ct5p-hightpu-4t", 432),
    ],
)
def test_a_tpu_name_means_this_topology_on_this_machine(
    text: str, topology: str, machine: str, hosts: int
) -> None:
    found = tpu(text)

    assert (found.topology, found.machine_type, found.hosts) == (topology, machine, hosts)
    assert found.multi_host is (hosts > 1)


def test_v3_8_is_a_board_and_has_another_label_than_a_part_of_a_pod() -> None:
    assert parse_accelerator("tpu-v3-8") == parse_accelerator("v3-4") == parse_accelerator("v3-2x2")
    assert tpu("v3-4").label == "tpu-v3-device"
    assert tpu("v3-16").label == "tpu-v3-slice"


@pytest.mark.parametrize(
    ("text", "canonical", "machine"),
    [
        ("gpu", "l4", "g2-standard-4"),
        ("gpu-l4", "l4", "g2-standard-4"),
        ("nvidia-l4", "l4", "g2-standard-4"),
        ("gpu:a100x4", "a100x4", "a2-highgpu-4g"),
        ("a100-40gb", "a100", "a2-highgpu-1g"),
        ("a100x16", "a100x16", "a2-megagpu-16g"),
        ("a100-80gbx8", "a100-80gbx8", "a2-ultragpu-8g"),
        ("h100", "h100", "a3-highgpu-1g"),
        ("h200", "h200x8", "a3-ultragpu-8g"),
        ("gb300", "gb300x4", "a4x-maxgpu-4g-metal"),
        ("rtx-pro-6000", "rtx-pro-6000", "g4-standard-48"),
        ("rtx-pro-6000x8", "rtx-pro-6000x8", "g4-standard-384"),
        ("nvidia-tesla-t4x2", "t4x2", "n1-standard-8"),
        ("v100x8", "v100x8", "n1-standard-64"),
    ],
)
def test_a_gpu_name_means_this_machine(text: str, canonical: str, machine: str) -> None:
    assert (gpu(text).canonical, gpu(text).machine_type) == (canonical, machine)


def test_grace_machines_are_told_apart_because_their_images_are_for_arm() -> None:
    assert {each.name for each in GPU_TYPES if each.arm64} == {"gb200", "gb300"}
    assert gpu("gb200").arm64


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("tpu:8", "v6e-8"),
        ("tpu:1", "v6e-1"),
        ("tpu-512", "v5p-512"),
        ("gpu:4", "h100x4"),
        ("gpu:16", "a100x16"),
    ],
)
def test_a_count_alone_means_the_most_capable_type_that_offers_it(text: str, meant: str) -> None:
    assert parse_accelerator(text).canonical == meant


@pytest.mark.parametrize(
    ("text", "cores", "slug"), [("cpu", None, "cpu"), ("cpu:8", 8, "cpu-8"), ("CPU-8", 8, "cpu-8")]
)
def test_a_processor_may_have_a_number_of_cores(text: str, cores: int | None, slug: str) -> None:
    assert parse_accelerator(text) == Cpu(cores)
    assert parse_accelerator(text).slug == slug


@pytest.mark.parametrize("text", ["  TPU-V5E-2X2  ", "tpu:v5litepod-4", "V5e", "v5LitePod-2x2"])
def test_case_spaces_and_prefixes_do_not_matter(text: str) -> None:
    assert parse_accelerator(text) == parse_accelerator("v5litepod-4")


@pytest.mark.parametrize("text", ["v5e-4", "gpu:4", "l4x2", "cpu", "tpu"])
def test_spot_is_a_suffix_or_an_argument(text: str) -> None:
    assert parse_accelerator(f"{text}:SPOT") == parse_accelerator(text, spot=True)
    assert str(parse_accelerator(f"{text}:spot")).endswith(":spot")
    assert not parse_accelerator(text).spot


def test_every_entry_of_the_catalogue_parses_back_to_itself() -> None:
    for each in catalogue():
        assert parse_accelerator(each.slug) == each
        assert parse_accelerator(f"{each.kind}-{each.slug}".removeprefix("cpu-")) == each
        assert re.fullmatch(r"[a-z0-9]([a-z0-9-]*[a-z0-9])?", each.slug)


def test_every_shape_parses_back_to_itself_and_is_consistent() -> None:
    for each in EVERYTHING:
        assert parse_accelerator(str(each)) == each
        if isinstance(each, Tpu):
            sides = [int(side) for side in each.topology.split("x")]
            assert prod(sides) == each.chips
            assert sides == sorted(sides) or not each.multi_host
            assert len(sides) == (2 if each.generation in ("v3", "v5litepod", "v6e") else 3)
            assert each.hosts * each.chips_per_host == each.chips
            assert parse_accelerator(f"{each.generation}-{each.topology}") == each


@pytest.mark.parametrize(("generation", "ceiling"), [("v4", 4096), ("v5p", 6144), ("tpu7x", 9216)])
def test_the_largest_slice_is_the_ceiling_of_its_generation(generation: str, ceiling: int) -> None:
    chips = [
        each.chips for each in EVERYTHING if isinstance(each, Tpu) and each.generation == generation
    ]

    assert max(chips) == ceiling


def test_no_two_types_share_a_name() -> None:
    names = [name for kind in (*GPU_TYPES, *TPU_GENERATIONS) for name in kind.names]

    assert len(names) == len(set(names))


@pytest.mark.parametrize(
    ("text", "message", "hint"),
    [
        ("v5x-8", "v5x-8", "v5e"),
        ("h10", "h10", "h100"),
        ("tpu-l4", "tpu-l4", "Did you mean l4"),
        ("gpu-v5e-4", "gpu-v5e-4", "Did you mean v5e-4"),
        ("v5e-2", "no slice of 2 chips", "v5litepod-4: 4 chips in 2x2 on one ct5lp-hightpu-4t"),
        ("v5e-4x2", "topology 4x2", "v5litepod-8: 8 chips in 2x4"),
        ("v5p-5x5x5", "topology 5x5x5", "4x4x8"),
        ("v4-8192", "no slice of 8192 chips", "16x16x16 on 1024 hosts"),
        ("v5e-abc", "not a size", "v5litepod-CHIPS or v5litepod-TOPOLOGY"),
        ("l4x3", "No machine has 3 × l4", "l4x2: 2 × nvidia-l4 on one g2-standard-24"),
        ("a100-80gbx16", "16 × a100-80gb", "a100-80gbx8"),
        ("l4-4", "not the form for several", "Write l4x4"),
        ("tpu:3", "No TPU slice has 3 chips", "v6e-4"),
        ("gpu:3", "No machine has 3 GPUs", "1, 2, 4, 8, 16"),
        ("cpu:0", "no core", "cpu:N"),
        ("tpu-v5litepod-٤", "not a size", "v5litepod-CHIPS or v5litepod-TOPOLOGY"),
        ("v5e-2x４", "not a size", "v5litepod-CHIPS or v5litepod-TOPOLOGY"),
        ("gpu-l4x１", "l4x１", "Did you mean l4"),
        ("cpu:٤", "cpu:٤", "Did you mean cpu"),
        ("cpu:1_0", "cpu:1_0", "Did you mean cpu"),
        ("", "''", "kinetic accelerators"),
    ],
)
def test_an_unknown_accelerator_is_refused_with_the_nearest_known_one(
    text: str, message: str, hint: str
) -> None:
    with pytest.raises(UnknownAcceleratorError) as refused:
        parse_accelerator(text)

    assert message in refused.value.message
    assert hint in (refused.value.hint or "")


@given(
    st.text(max_size=40)
    | st.from_regex(r"(tpu|gpu|cpu|v5e|l4|v4)[-:x0-9]{0,30}(:spot)?", fullmatch=True)
)
def test_any_text_is_parsed_or_refused_with_a_hint(text: str) -> None:
    try:
        found: object = parse_accelerator(text)
    except UnknownAcceleratorError as error:
        found = error.hint

    assert isinstance(found, str) or parse_accelerator(str(found)) == found


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("v5e-8", "v5litepod-8: 8 chips in 2x4 on one ct5lp-hightpu-8t"),
        ("v4-8", "v4-8: 8 chips in 2x2x2 on 2 hosts, each a ct4p-hightpu-4t with 4"),
        ("l4x4:spot", "l4x4: 4 × nvidia-l4 on one g2-standard-48, spot"),
        ("gb200", "gb200x4: 4 × nvidia-gb200 on one a4x-highgpu-4g (Arm)"),
        ("cpu", "cpu: processor only"),
        ("cpu:1", "cpu:1: processor only, 1 core"),
    ],
)
def test_a_description_says_topology_machine_and_hosts(text: str, line: str) -> None:
    assert describe(parse_accelerator(text)) == line
