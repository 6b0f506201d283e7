import typing

import pydantic
from shipping import ship

T = typing.TypeVar("T")


class Box(pydantic.BaseModel, typing.Generic[T]):
    content: T
    more: "list[Box[T]]" = []


class Item(pydantic.BaseModel):
    name: str = "item"


@pydantic.validate_call
def twice(x: int, item: Item = Item()):
    return 2 * x, item


def facts():
    return {"validated": repr(twice("4")), "in the job": repr(Box[int](content="3"))}


if __name__ == "__main__":
    from shipping import compare

    print(compare(facts), "facts")
    try:
        ship(lambda box: box, Box[int](content=3))
    except TypeError as error:
        print(error)
