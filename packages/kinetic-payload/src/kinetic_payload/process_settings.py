"""Settings of a process that change what libraries compute: read at the submit, applied in the job.

| what | at the submit | in the job |
|---|---|---|
| options of `jax.config`, or `JAX_…` in the environment if JAX is not imported | differ from JAX's defaults | the variables that JAX reads |
| the backend of Keras | Keras is imported | `KERAS_BACKEND` |
| `floatx` and dtype policy of Keras | differ from `float32` | set again |
| level and format of the root logger | differ from Python's | set again |

Options that choose platforms, devices and caches belong to the job.
"""

from __future__ import annotations

import json
import logging
import os
import re
import sys
from collections.abc import Mapping, MutableMapping
from contextlib import suppress
from enum import Enum
from importlib import import_module
from pathlib import Path
from typing import Any, Final

from kinetic_payload.files.private import make_folder, write_private

_OF_THE_MACHINE: Final = re.compile(
    "backend|cache|collectives|cpu|cross_host|cuda|device|distributed|dump|gpu|mock|oneapi|pjrt|"
    "platform|preemption|recoverability|rocm|topology|transfer_guard|xla",
    re.IGNORECASE,
)
_PRINT_DEFAULTS: Final = """
import json, jax
from kinetic_payload.process_settings import options_of
print(json.dumps(options_of(jax.config)))
"""
_LOGGING: Final = "logging."
_KERAS: Final = "keras."


def read_settings(environ: Mapping[str, str], defaults: Mapping[str, str] | None) -> dict[str, str]:
    """Return the settings of this process, by name; *defaults* are those of `jax_defaults`."""
    return {**_of_jax(environ, defaults), **_of_keras(), **_of_logging()}


def jax_defaults(environ: Mapping[str, str], cache: Path) -> dict[str, str] | None:
    """Return the defaults of the JAX that is imported here; None if there is none, or if that is not possible.

    JAX shows only values, so another Python imports it: once for each version, since the folder *cache* keeps
    the defaults.
    """
    jax: Any = sys.modules.get("jax")
    if not hasattr(jax, "config"):
        return None
    import subprocess

    kept = cache / f"jax-{jax.__version__}.json"
    with suppress(OSError, ValueError):
        return dict(json.loads(kept.read_text()))
    clean = {name: value for name, value in environ.items() if not name.startswith("JAX_")}
    clean["PYTHONPATH"] = os.pathsep.join(filter(None, sys.path))
    try:
        command = [sys.executable, "-c", _PRINT_DEFAULTS]
        done = subprocess.run(command, env=clean, capture_output=True, timeout=60, check=True)
        found = dict(json.loads(done.stdout))
    except (OSError, ValueError, subprocess.SubprocessError):
        return None  # An application that embeds Python, for instance
    with suppress(OSError):
        make_folder(cache)
        write_private(kept, json.dumps(found).encode())
    return found


def apply_settings(settings: Mapping[str, str], environ: MutableMapping[str, str]) -> None:
    """Apply *settings* to this process, before JAX and Keras are imported; *environ* has precedence."""
    for name, value in settings.items():
        if name.isupper():
            environ.setdefault(name, value)
    logged = {
        name.removeprefix(_LOGGING): value
        for name, value in settings.items()
        if name.startswith(_LOGGING)
    }
    if logged:
        level = int(logged.pop("level", logging.WARNING))
        arguments: dict[str, Any] = {"level": level, **logged}
        logging.basicConfig(**arguments)
    if f"{_KERAS}floatx" in settings or f"{_KERAS}dtype_policy" in settings:
        with suppress(ImportError):  # A function that needs it fails by itself.
            keras: Any = import_module("keras")
            keras.config.set_floatx(settings.get(f"{_KERAS}floatx", "float32"))
            if policy := settings.get(f"{_KERAS}dtype_policy"):
                keras.config.set_dtype_policy(policy)


def options_of(config: Any) -> dict[str, str]:
    """Return the options of `jax.config` that its environment variables can express, by variable."""
    found = {}
    for name, option in config.values.items():
        value = option.value if isinstance(option, Enum) else option
        if name.startswith("jax_") and isinstance(value, str | int | float):
            found[name.upper()] = str(value)
    return {name: value for name, value in found.items() if not _OF_THE_MACHINE.search(name)}


def _of_jax(environ: Mapping[str, str], defaults: Mapping[str, str] | None) -> dict[str, str]:
    if defaults is None:
        given = {name: value for name, value in environ.items() if name.startswith("JAX_")}
        return {name: value for name, value in given.items() if not _OF_THE_MACHINE.search(name)}
    options = options_of(sys.modules["jax"].config)
    return {name: value for name, value in options.items() if value != defaults.get(name)}


def _of_keras() -> dict[str, str]:
    config: Any = getattr(sys.modules.get("keras"), "config", None)
    if not hasattr(config, "dtype_policy"):  # Keras 2, or half imported
        return {}
    found = {"KERAS_BACKEND": config.backend()}
    if config.floatx() != "float32":
        found[f"{_KERAS}floatx"] = config.floatx()
    if config.dtype_policy().name != config.floatx():
        found[f"{_KERAS}dtype_policy"] = config.dtype_policy().name
    return found


def _of_logging() -> dict[str, str]:
    root, found = logging.getLogger(), {}
    if root.level != logging.WARNING:
        found[f"{_LOGGING}level"] = str(root.level)
    for handler in root.handlers:
        # The handlers of pytest and absl are none that `basicConfig` makes.
        if type(handler) is logging.StreamHandler and handler.formatter is not None:
            found[f"{_LOGGING}format"] = str(handler.formatter._fmt)  # noqa: SLF001 - nothing else shows it
            if handler.formatter.datefmt:
                found[f"{_LOGGING}datefmt"] = handler.formatter.datefmt
    return found
