import shapes
from shipping import ship


class Equal(type):
    def __eq__(cls, other):
        return True

    def __hash__(cls):
        return 1


class One(metaclass=Equal):
    pass


class Two(metaclass=Equal):
    pass


class Keyed(shapes.Keyed, key="a" + str(1)):
    pass


def tried(function):
    try:
        ship(function)
    except TypeError as error:
        return str(error)


print(tried(lambda: One is Two).partition("\n")[0])
print(tried(lambda: Keyed()))
