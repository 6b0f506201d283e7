import typing

import msgspec


class Server(msgspec.Struct):
    port: typing.Annotated[int, msgspec.Meta(ge=1, title="Port", extra={"a": 1})] = 80
    host: typing.Annotated[str, msgspec.Meta(pattern="^[a-z]+$")] = "here"


def read(text):
    try:
        return repr(msgspec.json.decode(text, type=Server))
    except msgspec.ValidationError as error:
        return str(error)


def facts():
    return {
        "read": [read(text) for text in ('{"port": 0}', '{"host": "A"}', '{"port": 3}')],
        "schema": msgspec.json.schema(Server),
        "metadata": repr(typing.get_type_hints(Server, include_extras=True)),
    }


if __name__ == "__main__":
    from shipping import compare

    print(compare(facts), "facts")
