import threading

from cases import case, main


class Own:
    def __repr__(self):
        return "Own" if type(self) is Own else "a stranger"


@case
def nothing():
    return None


@case
def own():
    return Own()


@case
def its_class():
    return Own is type(Own()) and Own


@case
def text():
    return "x" * 3_000_000


@case
def half_a_pair():
    return "a\udcffb"


@case
def function():
    return (lambda: 1) and len


@case
def generator():
    return (x for x in range(3))


@case
def deep_down():
    return {"a": [1, {"lock": threading.Lock()}]}


@case
def coroutine():
    async def later():
        return 1

    return later()


@case
def too_deep():
    x = []
    for _ in range(100_000):
        x = [x]
    return x


if __name__ == "__main__":
    main()
