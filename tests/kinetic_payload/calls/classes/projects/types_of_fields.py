import typing
from dataclasses import dataclass

UserId = typing.NewType("UserId", int)
P = typing.ParamSpec("P")
Ts = typing.TypeVarTuple("Ts")
T = typing.TypeVar("T")


@dataclass
class User:
    id: UserId
    made_by: typing.Optional[typing.Callable[P, T]] = None
    parts: typing.Optional[typing.Tuple[typing.Unpack[Ts]]] = None


def main(user):
    return (
        User(user.id + 1),
        UserId,
        P,
        Ts,
        T,
        UserId.__module__,
        typing.get_type_hints(User)["id"] is UserId,
    )


if __name__ == "__main__":
    from shipping import ship

    user, *types, module, same = ship(main, User(UserId(1)))
    print(user == User(2), types == [UserId, P, Ts, T], module, same)
