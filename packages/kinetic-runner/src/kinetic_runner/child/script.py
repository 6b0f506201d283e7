"""(child) The function of jobs of `kinetic run`: it runs the project's script as `python SCRIPT ARGS` does."""

from __future__ import annotations

import io
import sys


def run_script(*arguments: str) -> None:
    """Run the script of this job, which is `sys.argv[0]`, as `__main__`, with *arguments*."""
    # Not with `runpy`, whose frames would be in each traceback: `__main__` is the script's already, and stays so
    # for its threads and exit handlers.
    main, script = sys.modules["__main__"], sys.argv[0]
    sys.argv[1:] = arguments
    with io.open_code(script) as stream:
        code = compile(stream.read(), script, "exec", dont_inherit=True)
    exec(code, vars(main))  # noqa: S102 - the user's own script
