"""The pickler of values and exceptions that a job returns to its client."""

from __future__ import annotations

from types import FunctionType
from typing import Any

from cloudpickle import cloudpickle as internals

from kinetic_payload.calls import rebuild
from kinetic_payload.calls.classes.reduce import ByteCounter, ClassPickler


class ValuePickler(ClassPickler):
    """Pickle a value for the client, which uses its own class for each class that it sent."""

    def reduce_class(self, cls: type) -> Any:
        """Return how to find *cls*, or how to rebuild it if the client has none."""
        if self.goes_by_value(cls):
            return self.reduce_class_by_value(cls, main_name=None)
        return internals._class_reduce(cls)

    def reduce_function(self, function: FunctionType) -> Any:
        """Return how to find or rebuild *function*."""
        reduced = self._function_reduce(function)
        return reduced if reduced is NotImplemented else self.bared(function, reduced)

    def reference(self, obj: Any) -> tuple[str, str, int] | None:
        """Return where the client finds *obj*: module, name, and how many other objects it wraps."""
        module, name = getattr(obj, "__module__", None), getattr(obj, "__qualname__", None)
        if not isinstance(module, str) or not isinstance(name, str):
            return None
        leads = rebuild.leads_plainly_to if module == "__main__" else rebuild.leads_to
        return (module, name, rebuild.depth_of(obj)) if leads(obj, module, name) else None

    def importable(self, module: object) -> bool:
        """Tell whether the client can import the module of this name: its `__main__` may be another script."""
        return module != "__main__"

    def goes_by_value(self, obj: Any) -> bool:
        """Tell whether *obj*, a class or function, is rebuilt on the client rather than imported."""
        if isinstance(obj, type) and obj in internals._BUILTIN_TYPE_NAMES:
            return False
        return not internals._should_pickle_by_reference(obj)

    def prober(self) -> ValuePickler:
        """Return a pickler like this one that only counts bytes."""
        return ValuePickler(ByteCounter())
