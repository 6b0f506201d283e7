"""Functions that code rewritten by pytest calls when an `assert` fails: pytest's own if it is installed.

Pickles name this module: if it is moved, add its former name to `unpickle`.
"""

from __future__ import annotations

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
        return str(arguments[2][0])
    return str(*arguments[:1]).replace("%", "%%")  # The code formats it with `%`.
