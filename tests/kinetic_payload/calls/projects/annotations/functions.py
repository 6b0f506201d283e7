import annotationlib
import inspect
from annotationlib import Format
from typing import TYPE_CHECKING

from shown import all_of

if TYPE_CHECKING:
    from heavy import Only


def plain(x: int, y: list[Later]) -> dict[str, Later]:
    return x


def unresolved(x: Only, y: int) -> Only.inner:
    return x


def with_defaults(x: Only = 3, *, k: Later = 4):
    return x, k


def mutated(x: int):
    return x


mutated.__annotations__["y"] = str


def replaced(x: int):
    return x


replaced.__annotations__ = {"x": float}


def generic[T: int = bool, **P = [int]](x: T) -> list[T]:
    return x


type Missing = list[Only]


def bounded[T: Only](x: T) -> Missing:
    return x


def outer():
    class Local:
        pass

    def inner(x: Local) -> Nowhere:  # noqa: F821
        return x

    return inner, Local


INNER, LOCAL = outer()


def makes_a_class():
    class Made:
        x: Later
        y: "AsText"

        def m(self, a: Only) -> Later:
            return a

    return Made


class Later:
    pass


class AsText:
    pass


def facts():
    made = makes_a_class()
    return all_of(plain, unresolved, with_defaults, replaced, INNER, made) | {
        "mutated": mutated.__annotations__,
        "same": plain.__annotations__["y"] == list[Later],
        "closure": annotationlib.get_annotations(INNER, format=Format.FORWARDREF)["x"] is LOCAL,
        "signature": str(inspect.signature(unresolved, annotation_format=Format.STRING)),
        "called": [plain(1, 2), unresolved(3, 4), with_defaults(), INNER(5), made().m(6)],
        "parameters": str(generic.__type_params__[0].__bound__),
        "defaults": [
            f"{one} {one.__default__} {one.__infer_variance__}" for one in generic.__type_params__
        ],
        "bounded": bounded(6),
    }


if __name__ == "__main__":
    from shipping import compare

    print(compare(facts) > 10)
