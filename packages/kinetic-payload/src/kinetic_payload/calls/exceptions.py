"""Exceptions that pickle would make with other arguments than their `__init__` takes."""

from __future__ import annotations

import copyreg
from types import MemberDescriptorType
from typing import Any, Final

from kinetic_payload.calls.rebuild import bare_error, builtin_base, fill_error

_NOT_OF_ERRORS: Final = frozenset({"__suppress_context__", "exceptions", "message", "obj"})
"""Attributes of builtin exceptions that are not state, or that pickle leaves out."""


def reduce_error(error: BaseException) -> Any:
    """Return how to make *error* again where its class has an `__init__` of its own.

    Pickle would call that with `args`, which are often others than it takes.
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
        # To C code, None is another thing than nothing.
        nothing = None if builtin_base(base) is base else slots
        for name, member in vars(base).items():
            if isinstance(member, MemberDescriptorType) and name not in _NOT_OF_ERRORS:
                value = getattr(error, name, nothing)
                if value is not nothing:
                    slots[name] = value
    return bare_error, (kind, args), (slots, dict(vars(error))), None, None, fill_error
