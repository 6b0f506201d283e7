from dataclasses import dataclass

from shipping import ship

from kinetic_payload.errors import PayloadError

type Pair = tuple[int, int]
type Json = dict[str, Json] | list[Json] | None
type Tree[T] = T | list[Tree[T]]


type Many[T] = list[T]


class Call[*Ts, **P]:
    pass


@dataclass
class Typed[T]:
    content: Many[T]


class Box[T]:
    def __init__(self, x: T):
        self.x = x

    def get(self) -> T:
        return self.x


def first[T](x: list[T]) -> T:
    return x[0]


def main(box: Box[int], pair: Pair):
    return first([box.get()]), pair, Box[int](2)


def typed(value):
    parameters = [str(one) for one in Call.__type_params__ + Typed.__type_params__]
    return value, Typed([2]), Call(), str(Many), Many.__module__, parameters


def json(x: Json) -> Json:
    return Json.__value__.__args__[0].__args__[1] is Json, Json.__module__, repr(Json)


def tree(x: Tree[int]):
    pass


if __name__ == "__main__":
    value = ship(main, Box(1), (1, 2))
    print(value[:2], type(value[2]) is Box)
    print(ship(json, None))
    one, two, call, *shown = ship(typed, Typed([1]))
    print(one == Typed([1]), two == Typed([2]), type(call) is Call, *shown)
    try:
        ship(tree, 1)
    except PayloadError as error:
        print(error.message)
