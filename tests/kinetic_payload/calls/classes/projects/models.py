import typing

import pydantic

T = typing.TypeVar("T")


class Box(pydantic.BaseModel, typing.Generic[T]):
    content: T
    more: "list[Box[T]]" = []


class Item(pydantic.BaseModel):
    box: "typing.Optional[Box[Item]]" = None


BOX = Box[int](content=3, more=[{"content": 4}])
ITEM = Item(box={"content": {}})


@pydantic.validate_call
def twice(x: int, item: Item = ITEM):
    return 2 * x, item


def facts():
    return {
        "class": (
            type(BOX) is Box[int],
            type(ITEM.box) is Box[Item],
            isinstance(BOX.more[0], Box[int]),
        ),
        "validated": repr((Item(box=ITEM.box), twice("4"))),
    }


def main():
    return Box[int](content=1), Box[str](content=""), Box[bytes]


if __name__ == "__main__":
    from shipping import ship

    number, text, kind = ship(main)
    print(type(number) is Box[int], type(text) is Box[str], kind is Box[bytes])
    from shipping import compare

    print(compare(facts), "facts")
