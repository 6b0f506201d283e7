from __future__ import annotations

import copy
import pickle

import pytest

import kinetic.errors
from kinetic.errors import BatchError, DataNotFoundError, JobError, KineticError

EVERY = sorted(
    (
        found
        for found in vars(kinetic.errors).values()
        if isinstance(found, type) and issubclass(found, KineticError)
    ),
    key=lambda kind: kind.__name__,
)


@pytest.mark.parametrize("kind", EVERY, ids=lambda kind: kind.__name__)
def test_an_error_can_be_copied_and_pickled(kind: type[KineticError]) -> None:
    more = {"filename": "digits.csv"} if kind is DataNotFoundError else {}
    if issubclass(kind, JobError):
        more = {"job_id": "cpu-train-1"}
    if kind is BatchError:
        error: KineticError = BatchError("grp-0a1b2c3d", [], [1, None], total=2)
    else:
        error = kind("What failed.", hint="The next step.", **more)

    for found in (pickle.loads(pickle.dumps(error)), copy.copy(error), copy.deepcopy(error)):
        assert type(found) is kind
        assert str(found) == str(error)
        assert vars(found) == vars(error)
