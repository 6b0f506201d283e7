"""Record the picture of the README: two calls, of which one fails, as a terminal shows them.

`uv run --group docs python dev/terminal.py` runs the program below and writes `docs/terminal.svg`.
"""

from __future__ import annotations

import io
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from rich.console import Console
from rich.syntax import Syntax
from rich.text import Text

PICTURE = Path(__file__).resolve().parent.parent / "docs" / "terminal.svg"
PROGRAM = """\
import jax
import jax.numpy as jnp
import kinetic

@kinetic.run(accelerator="tpu-v5litepod-4", backend="local")
def train(rate: float) -> float:
    print(f"training on {jax.device_count()} devices")
    if rate > 1:
        raise ValueError(f"rate={rate} diverges")
    return float(jnp.exp(-rate))

print("loss", train(0.5))
print("loss", train(5.0))
"""


def main() -> None:
    """Run the program, and draw it with what it printed."""
    console = Console(record=True, width=92, file=io.StringIO(), force_terminal=True)
    prompt = Text("$ ", style="bold green")
    with tempfile.TemporaryDirectory() as scratch:
        script = Path(scratch, "train.py")
        script.write_text(PROGRAM, encoding="utf-8")
        script.with_name("pyproject.toml").touch()
        done = subprocess.run(
            [sys.executable, script.name],
            cwd=scratch,
            env={**os.environ, "KINETIC_HOME": f"{scratch}/home"},  # noqa: TID251 - a child's
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        printed = re.sub(rf"(/private)?{re.escape(scratch)}/", "~/digits/", done.stdout)
    console.print(prompt + Text("cat train.py"))
    console.print(Syntax(PROGRAM.rstrip(), "python", theme="ansi_dark"))
    console.print(prompt + Text("python train.py"))
    console.print(Text.from_ansi(printed.rstrip()))
    picture = re.sub(r"@font-face \{.*?\}", "", console.export_svg(title=""), flags=re.DOTALL)
    PICTURE.write_text(picture.replace("Fira Code", "ui-monospace"), encoding="utf-8")


if __name__ == "__main__":
    main()
