from __future__ import annotations

import json
from typing import Any

from kinetic_images.builders.layers.builder import config_of
from kinetic_images.builders.layers.layer_file import LayerBlob
from kinetic_images.registry.oci import (
    digest_of,
    parse_config,
)

BASE_LAYER = digest_of(b"base")
LAYER = LayerBlob(digest=digest_of(b"ours"), diff_id=digest_of(b"plain"), size=4)


def a_config(**changes: Any) -> dict[str, Any]:
    return {
        "architecture": "arm64",
        "variant": "v8",
        "os": "linux",
        "created": "2025-01-01T00:00:00Z",
        "config": {
            "Env": ["LANG=C.UTF-8", "PATH=/usr/bin", "A=b=c"],
            "Labels": {"base": "yes", "both": "base"},
            "User": "7",
            "Entrypoint": ["/entry"],
        },
        "rootfs": {"type": "layers", "diff_ids": [BASE_LAYER]},
        "history": [{"created_by": "base"}, {"created_by": "ENV", "empty_layer": True}],
        "container_config": {"Hostname": "x"},
        "unknown": {"kept": True},
        **changes,
    }


def built(**changes: Any) -> dict[str, Any]:
    base = parse_config(json.dumps(a_config(**changes)).encode())
    found: dict[str, Any] = json.loads(
        config_of(base, [("numpy 2.0", LAYER)], {"both": "ours", "more": "x"})
    )
    return found


def test_the_configuration_is_the_bases_with_our_layers_labels_and_path() -> None:
    expected = a_config(
        rootfs={"type": "layers", "diff_ids": [BASE_LAYER, LAYER.diff_id]},
        history=[
            *a_config()["history"],
            {"created": "2025-01-01T00:00:00Z", "created_by": "kinetic-images: numpy 2.0"},
        ],
    )
    expected["config"]["Env"] = ["LANG=C.UTF-8", "PATH=/opt/kn/bin:/usr/bin", "A=b=c"]
    expected["config"]["Labels"] = {"base": "yes", "both": "ours", "more": "x"}
    del expected["container_config"]

    assert built() == expected


def test_a_base_without_settings_and_history_is_extended_as_well() -> None:
    found = built(config=None, history=None, created=None)

    assert found["config"]["Env"][0].startswith("PATH=/opt/kn/bin:/usr/local/sbin:")
    assert found["created"] == "1970-01-01T00:00:00Z"
    # docker rejects a history that is incomplete.
    assert found["history"] == []
