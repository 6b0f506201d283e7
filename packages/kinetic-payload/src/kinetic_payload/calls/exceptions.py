"""Pickle exceptions whose class has an `__init__` of its own."""

from __future__ import annotations

import copyreg
from types import MemberDescriptorType
from typing import Any, Final

from kinetic_payload.calls.rebuild import bare_error, builtin_base, fill_error

_NOT_STATE: Final = frozenset({"__suppress_context__", "exceptions", "message", "obj"})
"""Attributes of builtin exceptions that are not part of their state, or that pickle leaves out."""


def reduce_error(error: BaseException) -> Any:
    """Return how to rebuild *error* without calling an `__init__` of its own class.

    Pickle would call that `__init__` with `args`, which often do not match its parameters.
    """
    kind = type(error)
    builtin = builtin_base(kind)

    def inherits(*names: str) -> bool:
        return all(getattr(kind, name) == getattr(builtin, name) for name in names)

    if (
        kind in copyreg.dispatch_table
        or not inherits("__reduce__", "__reduce_ex__")
        or inherits("__init__", "__new__")
    ):
        return NotImplemented
    args = error.args
    if isinstance(error, BaseExceptionGroup):
        args = error.message, list(error.exceptions)
    slots: dict[str, Any] = {"args": error.args}
    for base in kind.__mro__:
        # A builtin attribute without a value reads as None. Do not set it to None: C code distinguishes them.
        no_value = None if builtin_base(base) is base else slots
        for name, member in vars(base).items():
            if isinstance(member, MemberDescriptorType) and name not in _NOT_STATE:
                value = getattr(error, name, no_value)
                if value is not no_value:
                    slots[name] = value
    return bare_error, (kind, args), (slots, dict(vars(error))), None, None, fill_error
