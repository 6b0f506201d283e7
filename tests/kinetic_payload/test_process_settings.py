"""Settings of libraries: read in one process, and applied in another one, with the real libraries."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

READ = """
import json, os
from pathlib import Path
from kinetic_payload.process_settings import jax_defaults, read_settings
print(json.dumps(read_settings(os.environ, jax_defaults(os.environ, Path("cache")))))
"""
APPLY = """
import json, os, sys
from kinetic_payload.process_settings import apply_settings
apply_settings(json.loads(sys.argv[1]), os.environ)
def of_keras():
    import keras
    from kinetic_payload.process_settings import apply_to_keras
    apply_to_keras(json.loads(sys.argv[1]), keras)
    return keras
"""

ROWS = [
    pytest.param(
        # Importing both takes seconds, so there is one row for all of their settings.
        "import jax, keras\n"
        "jax.config.update('jax_enable_x64', True)\n"
        "jax.config.update('jax_numpy_dtype_promotion', 'strict')\n"
        "jax.config.update('jax_platforms', 'cpu')\n"
        "keras.config.set_floatx('float16')\n"
        "keras.mixed_precision.set_global_policy('mixed_bfloat16')",
        {
            "JAX_ENABLE_X64": "True",
            "JAX_NUMPY_DTYPE_PROMOTION": "strict",
            "keras.floatx": "float16",
            "keras.dtype_policy": "mixed_bfloat16",
        },
        "keras = of_keras(); import jax.numpy; print('JAX_PLATFORMS' in os.environ, jax.numpy.ones(1).dtype, "
        "jax.config.jax_numpy_dtype_promotion.value, keras.config.floatx(), keras.config.dtype_policy().name)",
        "False float64 strict float16 mixed_bfloat16",
        id="options of JAX, which has the job's own platform, and of Keras",
    ),
    pytest.param(
        "import logging; logging.basicConfig(style='{', format='{name} says {message}', level='INFO')",
        {"logging.level": "20"},
        "import logging; print(logging.root.level, logging.root.handlers)",
        "20 []",
        id="a format with braces is not carried",
    ),
    pytest.param(
        "import logging; logging.basicConfig(level='INFO', format='%(name)s says %(message)s')",
        {"logging.level": "20", "logging.format": "%(name)s says %(message)s"},
        "import logging; logging.getLogger('mine').info('this')",
        "mine says this",
        id="level and format of the root logger",
    ),
    pytest.param("", {}, "import logging; print(logging.getLogger().handlers)", "[]", id="none"),
]


def run(script: str, *arguments: str, folder: Path, backend: str = "") -> str:
    environ = {**os.environ, **({"KERAS_BACKEND": backend} if backend else {})}  # noqa: TID251 - a child's
    command = [sys.executable, "-c", script, *arguments]
    done = subprocess.run(command, cwd=folder, env=environ, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return (done.stdout + done.stderr).strip()


@pytest.mark.parametrize(("submit", "expected", "job", "printed"), ROWS)
def test_a_setting_of_the_submitting_process_holds_in_the_job(
    tmp_path: Path, submit: str, expected: dict[str, str], job: str, printed: str
) -> None:
    read = run(submit + READ, folder=tmp_path, backend="jax" if "keras" in submit else "")

    assert json.loads(read) == expected
    # A job has this backend.
    assert run(APPLY + job, read, folder=tmp_path, backend="jax").splitlines()[-1] == printed


def test_variables_of_the_environment_count_if_jax_is_not_imported_and_win_in_the_job(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JAX_ENABLE_X64", "1")
    monkeypatch.setenv("JAX_API_KEY", "secret")
    monkeypatch.setenv("JAX_COORDINATOR_ADDRESS", "10.0.0.1:8476")

    assert json.loads(run(READ, folder=tmp_path)) == {"JAX_ENABLE_X64": "1"}
    job = f"{APPLY}\nprint(os.environ['JAX_ENABLE_X64'])"
    assert run(job, '{"JAX_ENABLE_X64": "0"}', folder=tmp_path) == "1"


def test_bindings_of_gin_which_do_not_travel_are_a_warning(tmp_path: Path) -> None:
    configured = "import gin\n@gin.configurable\ndef rate(lr=1): return lr\n"
    show = "\nfrom kinetic_payload.process_settings import untravelled_settings\nprint(untravelled_settings())"

    assert run(f"{configured}{show}", folder=tmp_path) == "[]"
    assert "gin's bindings" in run(
        f"{configured}gin.bind_parameter('rate.lr', 2){show}", folder=tmp_path
    )
