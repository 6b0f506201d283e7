from __future__ import annotations

import functools
import inspect
import pickle
from datetime import timedelta

import pytest

import kinetic
from kinetic.decorator import RemoteCallable
from kinetic.errors import ConfigurationError, InvalidRequestError, NotInsideJobError
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


def test_the_contract_s_parameters_come_first_with_its_defaults() -> None:
    parameters = inspect.signature(kinetic.run).parameters

    assert [(p.name, p.default) for p in parameters.values()][:13] == [
        ("accelerator", "tpu-v5e-1"),
        ("container_image", None),
        ("base_image_repo", None),
        ("zone", None),
        ("project", None),
        ("capture_env_vars", None),
        ("cluster", None),
        ("backend", None),
        ("namespace", None),
        ("volumes", None),
        ("spot", False),
        ("output_dir", None),
        ("debug", False),
    ]
    assert all(p.kind is p.KEYWORD_ONLY for p in list(parameters.values())[13:])


def test_a_decorated_function_looks_like_itself() -> None:
    assert (add.__name__, add.__doc__, add.__module__) == ("add", "Add two numbers.", __name__)
    assert str(inspect.signature(add)) == "(a: 'int', b: 'int' = 1) -> 'int'"
    assert str(inspect.signature(Trainer().fit)) == "(x: 'int') -> 'int'"
    assert "accelerator='cpu'" in repr(add)
    assert add.__wrapped__(2, 3) == 5


@pytest.mark.parametrize("function", [add.__wrapped__, Trainer, classmethod(add.__wrapped__)])
def test_a_bare_decorator_is_refused_in_words(function) -> None:
    with pytest.raises(InvalidRequestError, match="without parentheses"):
        kinetic.run(function)


def test_a_function_is_not_decorated_twice() -> None:
    with pytest.raises(InvalidRequestError, match="already"):
        local()(add)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"accelerator": "tpu-v5litpod-4"}, "v5litepod"),
        ({"accelerator": 4}, "not text"),
        ({"container_image": "bundle"}, "'bundled'"),
        ({"container_image": "Bundled"}, "'bundled'"),
        ({"container_image": "prebuild"}, "'prebuilt'"),
        ({"container_image": "ubuntu"}, "ubuntu:latest"),
        ({"container_image": "not an image:1"}, "address"),
        ({"container_image": ""}, "no image"),
        ({"volumes": {"data": kinetic.Data(".")}}, "absolute"),
        ({"volumes": ["/data"]}, "not a dict"),
        ({"capture_env_vars": "HF_TOKEN"}, "['HF_TOKEN']"),
        ({"spot": "yes"}, "neither True nor False"),
        ({"debug": True, "retries": 1}, "contradict"),
        ({"base_image_repo": "me/kinetic"}, "container_image='prebuilt'"),
        ({"timeout": 0}, "greater than zero"),
        ({"timeout": timedelta(seconds=-1)}, "greater than zero"),
        ({"timeout": "1h"}, "timedelta"),
        ({"retries": -1}, "not a count"),
        ({"retries": True}, "not a count"),
        ({"preemptions": 1.5}, "not a count"),
        ({"memory": "16GB"}, "'16Gi'"),
        ({"cpu": "many"}, "cores"),
        ({"memory": "1G", "shared_memory": "2G"}, "Raise memory"),
        ({"labels": {"a b": "c"}}, "key of a label"),
        ({"labels": {"team": "a b"}}, "value of the label"),
        ({"zone": 3}, "not text"),
    ],
)
def test_an_argument_that_cannot_be_right_is_refused_at_the_decorator(arguments, said) -> None:
    with pytest.raises(InvalidRequestError) as caught:
        kinetic.run(**{"accelerator": "cpu", **arguments})

    assert said in str(caught.value)
    assert caught.value.hint


def test_arguments_that_the_function_would_refuse_are_refused_before_any_work(tmp_path) -> None:
    with pytest.raises(TypeError, match=r"add\(\): missing a required argument: 'a'"):
        add.run_async()
    with pytest.raises(TypeError, match="too many positional"):
        Trainer().fit(1, 2)

    assert list(tmp_path.iterdir()) == []


def test_a_cluster_without_a_project_is_refused_with_both_ways_out() -> None:
    @kinetic.run("tpu-v5litepod-4")
    def train() -> None: ...

    with pytest.raises(ConfigurationError, match=r"KINETIC_PROJECT[\s\S]*backend='local'"):
        train()


def test_inside_a_job_a_decorated_function_simply_runs(inside_a_job: None) -> None:
    assert add(1, b=2) == 3
    assert Trainer().fit(2) == 6
    assert Trainer.of(1) == "Trainer1"
    assert Trainer.free(4) == 4


def test_inside_a_job_nothing_is_checked_and_nothing_is_submitted(inside_a_job: None) -> None:
    @kinetic.run(accelerator="no such thing", backend="nor this", volumes={"x": "y"})
    def double(x: int) -> int:
        return 2 * x

    assert double(2) == 4
    with pytest.raises(NotInsideJobError, match="simply runs"):
        double.run_async(2)


def test_methods_bind_like_functions_do() -> None:
    trainer = Trainer()

    assert Trainer.fit is vars(Trainer)["fit"]
    assert trainer.fit == trainer.fit
    assert trainer.fit != Trainer().fit
    assert hash(trainer.fit) == hash(trainer.fit)


def test_a_classmethod_never_loses_its_class_silently() -> None:
    of = vars(Trainer)["of"].__func__

    check_class_given(of, (Trainer, 1))
    with pytest.raises(InvalidRequestError, match="does not get the class"):
        check_class_given(of, (1,))


def test_a_decorated_function_pickles_by_its_name_and_a_bound_one_with_its_instance() -> None:
    bound = pickle.loads(pickle.dumps(Trainer().fit))

    assert pickle.loads(pickle.dumps(add)) is add
    assert isinstance(bound, RemoteCallable)
    assert str(inspect.signature(bound)) == "(x: 'int') -> 'int'"


def test_cloudpickle_takes_one_by_value_that_calls_itself(inside_a_job: None) -> None:
    import cloudpickle

    from kinetic.decorator import _register_with_cloudpickle

    @local()
    def factorial(n: int) -> int:
        return 1 if n == 0 else n * factorial(n - 1)

    _register_with_cloudpickle()
    again = pickle.loads(cloudpickle.dumps(factorial))

    assert again is not factorial
    assert again(5) == 120


def test_a_function_may_call_its_keywords_what_it_likes(inside_a_job: None) -> None:
    @local()
    def work(**options: int) -> dict[str, int]:
        return options

    assert work(self=1, timeout=2) == {"self": 1, "timeout": 2}
