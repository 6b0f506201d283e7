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
        return getattr(_Plain, name)
    return getattr(rewrite, name)


class _Plain:
    """The part of `_pytest.assertion.rewrite` that rewritten code names, without comparisons."""

    @staticmethod
    def _saferepr(value: object) -> str:
        import reprlib

        return reprlib.repr(value).replace("\n", "\\n")

    @staticmethod
    def _should_repr_global_name(value: object) -> bool:
        return not callable(value) and not hasattr(value, "__name__")

    @staticmethod
    def _format_assertmsg(message: object) -> str:
        return str(message).replace("\n", "\n~").replace("%", "%%")

    @staticmethod
    def _format_boolop(explanations: Any, is_or: bool) -> str:
        joined = (" or " if is_or else " and ").join(explanations)
        return f"({joined})".replace("%", "%%")

    @staticmethod
    def _call_reprcompare(_: Any, results: Any, explanations: Any, __: Any) -> str:
        failed = [text for text, result in zip(explanations, results, strict=False) if not result]
        return str((failed or list(explanations))[0])

    @staticmethod
    def _format_explanation(explanation: str) -> str:
        first, *rest = explanation.split("\n")
        shown, outer = [first], [0]
        for line in rest:
            if line.startswith("{"):  # The origin of a value in the line before.
                outer.append(len(shown))
                shown.append(f"  where {line[1:]}")
            elif line.startswith("}"):  # The rest of the enclosing line.
                outer.pop()
                shown[outer[-1]] += line[1:]
            else:
                shown.append(line[1:] if line.startswith(">") else f"  {line[1:]}")
        return "\n".join(shown)

    @staticmethod
    def _call_assertion_pass(*_: object) -> None:
        return None

    @staticmethod
    def _check_if_assertion_pass_impl() -> bool:
        return False
