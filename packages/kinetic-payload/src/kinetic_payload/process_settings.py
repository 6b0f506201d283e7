"""Settings of a process that change what libraries compute: read at the submit, applied in the job.

| what | at the submit | in the job |
|---|---|---|
| options of `jax.config` | differ from JAX's defaults | the variables that JAX reads |
| variables of these options that change values, if JAX is not imported | are set | the same variables |
| `floatx` and dtype policy of Keras | differ from `float32` | set when Keras is imported |
| level and format of the root logger | differ from Python's | set again |

Options that choose platforms, devices, addresses and caches belong to the job, and so does the backend of Keras.
"""

from __future__ import annotations

import functools
import json
import logging
import os
import re
import sys
from collections.abc import Mapping, MutableMapping
from contextlib import suppress
from enum import Enum
from pathlib import Path
from typing import Any, Final, TypeGuard

from kinetic_payload.files.private import make_folder, write_private

INITIALIZATION_TIMEOUT: Final = "jax.initialization_timeout"
"""Seconds for which JAX tries to connect the hosts; a setting of Kinetic, since none of JAX sets it."""
_OF_THE_MACHINE: Final = re.compile(
    "ADDRESS|BACKEND|CACHE|COLLECTIVES|COORDINATOR|CPU|CROSS_HOST|CUDA|DEVICE|DISTRIBUTED|DUMP|GPU|MOCK|ONEAPI|"
    "PARTITION_INDEX|PJRT|PLATFORM|PREEMPTION|PROCESS|RECOVERABILITY|ROCM|SLICE|TOPOLOGY|TPU|TRANSFER_GUARD|XLA"
)
_CHANGES_VALUES: Final = re.compile(
    "JAX_(DEBUG_INFS|DEBUG_NANS|DEFAULT_DTYPE_BITS|DEFAULT_MATMUL_PRECISION|DEFAULT_PRNG_IMPL|DISABLE_JIT|"
    "ENABLE_CUSTOM_PRNG|ENABLE_X64|LEGACY_PRNG_KEY|NUMPY_DTYPE_PROMOTION|NUMPY_RANK_PROMOTION|"
    "RANDOM_SEED_OFFSET|SOFTMAX_CUSTOM_JVP|THREEFRY_PARTITIONABLE)"
)
"""Others may hold secrets and addresses."""
_PRINT_DEFAULTS: Final = """
import json, jax
from kinetic_payload.process_settings import options_of
print(json.dumps(options_of(jax.config)))
"""
_LOGGING: Final = "logging."
_KERAS: Final = "keras."


def read_settings(environ: Mapping[str, str], defaults: Mapping[str, str] | None) -> dict[str, str]:
    """Return the settings of this process, by name; *defaults* are those of `jax_defaults`."""
    if defaults is None:
        found = {name: value for name, value in environ.items() if _CHANGES_VALUES.fullmatch(name)}
    else:
        options = options_of(sys.modules["jax"].config)
        found = {name: value for name, value in options.items() if value != defaults.get(name)}
    keras: Any = getattr(sys.modules.get("keras"), "config", None)
    if hasattr(keras, "dtype_policy"):  # Not Keras 2, nor half imported
        policy = keras.dtype_policy().name
        if keras.floatx() != "float32":
            found[f"{_KERAS}floatx"] = keras.floatx()
        # A map of policies has no name to set it by.
        if policy != keras.floatx() and not policy.startswith("map_"):
            found[f"{_KERAS}dtype_policy"] = policy
    level = logging.root.level
    for handler in logging.root.handlers:
        # The handlers of pytest, absl and Rich are none that `basicConfig` makes.
        if type(handler) is logging.StreamHandler and _is_plain(handler.formatter):
            level = max(level, handler.level)
            found[f"{_LOGGING}format"] = str(handler.formatter._fmt)  # noqa: SLF001 - nothing else shows it
            if handler.formatter.datefmt:
                found[f"{_LOGGING}datefmt"] = handler.formatter.datefmt
    if level != logging.WARNING:
        found[f"{_LOGGING}level"] = str(level)
    return found


def untravelled_settings() -> list[str]:
    """Return a warning for each library whose settings in this process do not travel."""
    gin: Any = sys.modules.get("gin")
    if not getattr(gin, "config_str", str)():
        return []
    return [
        "gin's bindings in this process do not travel: parse them in the function, or in a module of the project that "
        "it imports."
    ]


def jax_defaults(environ: Mapping[str, str], cache: Path) -> dict[str, str] | None:
    """Return the defaults of the JAX that is imported here; None if there is none, or if that is not possible.

    JAX shows only values, so another Python imports it: once for each version, since the folder *cache* keeps
    the defaults.
    """
    jax: Any = sys.modules.get("jax")
    if not hasattr(jax, "config") or not sys.executable:
        return None
    kept = cache / f"jax-{jax.__version__}.json"
    with suppress(OSError, ValueError):
        return dict(json.loads(kept.read_text()))
    clean = {name: value for name, value in environ.items() if not name.startswith("JAX_")}
    clean["PYTHONPATH"] = os.pathsep.join(filter(None, sys.path))
    found = _printed_defaults(tuple(clean.items()))
    if found is None:
        return None
    with suppress(OSError):
        make_folder(cache)
        write_private(kept, json.dumps(found).encode())
    return found


@functools.cache
def _printed_defaults(environ: tuple[tuple[str, str], ...]) -> dict[str, str] | None:
    import subprocess

    try:
        command = [sys.executable, "-c", _PRINT_DEFAULTS]
        done = subprocess.run(
            command, env=dict(environ), capture_output=True, timeout=60, check=True
        )
        return dict(json.loads(done.stdout))
    except (OSError, ValueError, subprocess.SubprocessError):
        return None  # An application that embeds Python, for instance


def apply_settings(settings: Mapping[str, str], environ: MutableMapping[str, str]) -> None:
    """Apply *settings* to this process, before JAX is imported; *environ* has precedence."""
    for name, value in settings.items():
        if name.startswith("JAX_"):
            environ.setdefault(name, value)
    logged: dict[str, Any] = {
        name.removeprefix(_LOGGING): value
        for name, value in settings.items()
        if name.startswith(_LOGGING)
    }
    if level := logged.pop("level", None):
        logging.root.setLevel(int(level))
    if logged:
        logging.basicConfig(**logged)


def apply_to_keras(settings: Mapping[str, str], keras: Any) -> None:
    """Apply *settings* to the module *keras*, which was just imported.

    Raises:
        Exception: This version of Keras does not know one of them.
    """
    if floatx := settings.get(f"{_KERAS}floatx"):
        keras.config.set_floatx(floatx)
    if policy := settings.get(f"{_KERAS}dtype_policy"):
        keras.config.set_dtype_policy(policy)


def options_of(config: Any) -> dict[str, str]:
    """Return the options of `jax.config` that its environment variables can express, by variable."""
    found = {}
    for name, option in config.values.items():
        value = option.value if isinstance(option, Enum) else option
        if isinstance(option, Enum) and not isinstance(value, str):
            value = option.name.lower()
        if name.startswith("jax_") and isinstance(value, str | int | float):
            found[name.upper()] = str(value)
    return {name: value for name, value in found.items() if not _OF_THE_MACHINE.search(name)}


def _is_plain(formatter: logging.Formatter | None) -> TypeGuard[logging.Formatter]:
    """Tell whether *formatter* needs no more than its format, with `%`, and the fields of every record."""
    if type(formatter) is not logging.Formatter:
        return False
    try:
        logging.Formatter(formatter._fmt, formatter.datefmt).format(logging.makeLogRecord({}))  # noqa: SLF001
    except (ValueError, KeyError):
        return False
    return True
