"""The pickler of values and exceptions that a job returns to its client."""

from __future__ import annotations

import enum
from types import FunctionType
from typing import Any

from cloudpickle import cloudpickle as internals

from kinetic_payload.calls import rebuild
from kinetic_payload.calls.byte_counter import ByteCounter
from kinetic_payload.calls.classes.attribute_values import reducer_of
from kinetic_payload.calls.classes.body import Bare
from kinetic_payload.calls.classes.reduce import NAMED_TYPES, ClassPickler
from kinetic_payload.calls.exceptions import reduce_error


class ValuePickler(ClassPickler):
    """Pickle a value for the client, which uses its own class for each class that it sent."""

    def reducer_override(self, obj: Any) -> Any:
        """Reduce as cloudpickle does, except that loading must not change classes that the client has."""
        kind = type(obj)
        handler = reducer_of(kind)
        if handler is not None:
            return handler(obj)
        if kind in NAMED_TYPES and not internals._lookup_module_and_qualname(obj, obj.__name__):
            return self.reduce_named_type(obj)
        if isinstance(obj, type) and self.goes_by_value(obj):
            return self.reduce_class_by_value(obj, main_name=None)
        if issubclass(kind, enum.Enum) and self.goes_by_value(kind):
            return self.reduce_member(obj)
        if kind is Bare:
            return self.reduce_bare_function(obj)
        if issubclass(kind, BaseException):
            return reduce_error(obj)
        if kind is not FunctionType and not isinstance(obj, type) and rebuild.wraps(obj):
            return self._reduce_wrapper(obj)
        reduced = super().reducer_override(obj)
        if kind is FunctionType and reduced is not NotImplemented:
            return self.bared(obj, reduced)
        return reduced

    def _reduce_wrapper(self, wrapper: Any) -> Any:
        module, name = getattr(wrapper, "__module__", None), getattr(wrapper, "__qualname__", None)
        if isinstance(module, str) and isinstance(name, str):
            if rebuild.leads_plainly_to(wrapper, module, name):
                return name
            if module != "__main__" and rebuild.leads_to(wrapper, module, name):
                return rebuild.resolve, (module, name, len([*rebuild.wrappings(wrapper)]) - 1)
        if type(wrapper) is rebuild.CACHED:
            return rebuild.cached_function, (wrapper.__wrapped__, wrapper.cache_parameters())
        return super().reducer_override(wrapper)

    def goes_by_value(self, obj: Any) -> bool:
        """Tell whether *obj*, a class or function, is rebuilt on the client rather than imported."""
        if isinstance(obj, type) and obj in internals._BUILTIN_TYPE_NAMES:
            return False
        return not internals._should_pickle_by_reference(obj)

    def prober(self) -> ValuePickler:
        """Return a pickler like this one that only counts bytes."""
        return ValuePickler(ByteCounter())

    def reduce_bare(self, function: FunctionType) -> tuple[Any, ...]:
        """Return how to rebuild *function* without the objects that it refers to."""
        return internals._make_function, self._function_getnewargs(function)
