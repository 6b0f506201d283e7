"""Functions that code rewritten by pytest calls when an `assert` fails: pytest's own if it is installed.

Pickles name this module: if it is moved, add its former name to `unpickle`.
"""

from __future__ import annotations

import reprlib
from typing import Any


def __getattr__(name: str) -> Any:
    # Import pytest only when an assertion fails: it takes long.
    try:
        from _pytest.assertion import rewrite
    except ImportError:
        return _explanation
    return getattr(rewrite, name)


def _explanation(*arguments: Any) -> str:
    """Return the explanation among the *arguments* of any of pytest's functions, without its values."""
    if len(arguments) == 4:  # `_call_reprcompare`: operators, results, explanations, values.
        _, results, explanations, _ = arguments
        return str(explanations[next((n for n, held in enumerate(results) if held is False), -1)])
    value = arguments[0] if arguments else ""
    text = value if isinstance(value, str) else reprlib.repr(value)  # It survives any `__repr__`.
    return text.replace("%", "%%")  # The code formats it with `%`.
