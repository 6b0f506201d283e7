from __future__ import annotations

import functools
import inspect
from typing import Any

import pytest

import kinetic
from kinetic.errors import ConfigurationError, InvalidRequestError, KineticError, NotInsideJobError
from kinetic.submit.functions import check_class_given

local = functools.partial(kinetic.run, "cpu", backend="local")


@pytest.fixture
def inside_a_job(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KINETIC_JOB_ID", "cpu-f-20260101-000000-abcdef0")


@pytest.fixture(autouse=True)
def own_home(monkeypatch: pytest.MonkeyPatch, tmp_path) -> None:
    monkeypatch.setenv("KINETIC_HOME", str(tmp_path))
    for name in ("KINETIC_PROJECT", "GOOGLE_CLOUD_PROJECT", "KINETIC_BACKEND", "KINETIC_JOB_ID"):
        monkeypatch.delenv(name, raising=False)


@local()
def add(a: int, b: int = 1) -> int:
    """Add two numbers."""
    return a + b


class Trainer:
    rate = 3

    @local()
    def fit(self, x: int) -> int:
        return self.rate * x

    @classmethod
    @local()
    def of(cls, x: int) -> str:
        return f"{cls.__name__}{x}"

    @staticmethod
    @local()
    def free(x: int) -> int:
        return x


def test_a_decorated_function_keeps_its_name_and_signature() -> None:
    assert (add.__name__, add.__doc__, add.__module__) == ("add", "Add two numbers.", __name__)
    assert str(inspect.signature(add)) == "(a: 'int', b: 'int' = 1) -> 'int'"
    assert str(inspect.signature(Trainer().fit)) == "(x: 'int') -> 'int'"
    assert "accelerator='cpu'" in repr(add)
    assert add.__wrapped__(2, 3) == 5


@pytest.mark.parametrize("function", [add.__wrapped__, Trainer, classmethod(add.__wrapped__)])
def test_a_decorator_without_parentheses_is_refused(function) -> None:
    with pytest.raises(InvalidRequestError, match="without parentheses"):
        kinetic.run(function)


def test_a_second_decorator_is_refused() -> None:
    with pytest.raises(InvalidRequestError, match="already"):
        local()(add)


@pytest.mark.parametrize(
    ("given", "ours"),
    [
        ("image", "container_image="), ("gpu", 'accelerator="gpu-'), ("env", "capture_env_vars="),
        ("acelerator", "accelerator="),
    ],
)  # fmt: skip
def test_an_argument_of_another_tool_is_answered_with_that_of_kinetic(
    given: str, ours: str
) -> None:
    with pytest.raises(TypeError, match=rf"argument '{given}'\. Did you mean {ours}"):
        kinetic.run(**{given: "x"})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("name", "ours"),
    [
        ("map", "run_async_map"),
        ("remote", "run_async"),
        ("spawn", "run_async"),
        ("submit", "run_async"),
    ],
)
def test_a_method_of_another_tool_is_answered_with_that_of_kinetic(name: str, ours: str) -> None:
    decorated = kinetic.run(accelerator="cpu")(lambda: None)

    with pytest.raises(AttributeError, match=rf"'{name}'\. In Kinetic: {ours}\("):
        getattr(decorated, name)
    assert not hasattr(decorated, "whatever")


def test_arguments_that_do_not_fit_the_signature_are_refused_before_any_work(tmp_path) -> None:
    with pytest.raises(TypeError, match=r"add\(\): missing a required argument: 'a'"):
        add.run_async()
    with pytest.raises(TypeError, match="too many positional"):
        Trainer().fit(1, 2)

    assert list(tmp_path.iterdir()) == []


def test_a_cluster_without_a_project_is_refused_with_both_remedies() -> None:
    @kinetic.run("tpu-v5litepod-4")
    def train() -> None: ...

    with pytest.raises(ConfigurationError, match=r"backend='local'[\s\S]*KINETIC_PROJECT"):
        train()


def test_options_are_not_checked_inside_a_job(inside_a_job: None) -> None:
    @kinetic.run(accelerator="no such thing", backend="nor this", volumes={"x": "y"})
    def double(x: int) -> int:
        return 2 * x

    assert double(2) == 4
    assert Trainer.of(1) == "Trainer1"
    assert Trainer.free(4) == Trainer().fit(2) - 2
    with pytest.raises(NotInsideJobError, match="simply runs"):
        double.run_async(2)


def test_methods_bind_as_functions_do() -> None:
    trainer = Trainer()

    assert Trainer.fit is vars(Trainer)["fit"]
    assert trainer.fit == trainer.fit
    assert trainer.fit != Trainer().fit
    assert hash(trainer.fit) == hash(trainer.fit)


def test_a_classmethod_without_its_class_is_refused() -> None:
    of = vars(Trainer)["of"].__func__

    check_class_given(of, (Trainer, 1))
    with pytest.raises(InvalidRequestError, match="does not get the class"):
        check_class_given(of, (1,))


def test_keywords_of_the_function_do_not_clash_with_those_of_the_decorator(
    inside_a_job: None,
) -> None:
    @local()
    def work(**options: int) -> dict[str, int]:
        return options

    assert work(self=1, timeout=2) == {"self": 1, "timeout": 2}


def test_the_project_and_the_cluster_of_a_batch_take_precedence_over_those_of_the_decorator(
    gke: Any,
) -> None:
    theirs = kinetic.run("cpu", backend="gke", project="theirs", cluster="one")(add.__wrapped__)

    with pytest.raises(KineticError, match=r"'two'.*'mine'|'mine'.*'two'") as caught:
        theirs.run_async_map([1], project="mine", cluster="two")
    assert "theirs" not in str(caught.value)
