"""What stands in annotations, in every format."""

import annotationlib
import dataclasses
import re
import typing
from annotationlib import Format
from types import FunctionType


def shown(what, form):
    try:
        found = str(annotationlib.get_annotations(what, format=form))
    except NameError as error:
        return repr(error)
    return re.sub(" at 0x[0-9a-f]+", "", found)


def all_of(*many):
    found = {}
    for one in many:
        found[f"{one.__name__} hints"] = "NameError"
        try:
            found[f"{one.__name__} hints"] = str(typing.get_type_hints(one))
        except NameError:
            pass
        for name, part in [("", one), *vars(one).items()]:
            part = getattr(part, "__func__", getattr(part, "fget", part))
            if part is one or isinstance(part, FunctionType):
                for form in (Format.VALUE, Format.FORWARDREF, Format.STRING):
                    found[f"{one.__name__}.{name} {form.name}"] = shown(part, form)
        if dataclasses.is_dataclass(one):
            found[f"{one.__name__} fields"] = [
                (f.name, str(f.type)) for f in dataclasses.fields(one)
            ]
    return found
