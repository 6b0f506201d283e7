"""The names, parameters and defaults that others rely on, as text that is read in review."""

from __future__ import annotations

import ast
import difflib
import importlib.util
import inspect
from collections.abc import Iterator
from operator import attrgetter
from pathlib import Path

import pytest

import kinetic
from kinetic.debug import cleanup_port_forward

ROOT = Path(__file__).parents[2]
RECORDED = Path(__file__).with_name("public_api.txt")
AGAIN = "python tests/architecture/test_public_api.py"

GIVEN_OUT = (("decorator", "RemoteCallable"), ("jobs.outcome", "JobOutcome"))
"""What users get from the facade without naming it."""

PUBLIC = (
    "kinetic.backends",
    "kinetic.debug",
    "kinetic.errors",
    "kinetic.job_status",
    "kinetic.testing",
    "kinetic.testing.clients",
    "kinetic_images.builders.cloud_build.builder",
    "kinetic_images.builders.docker.builder",
    "kinetic_images.dependencies",
    "kinetic_images.errors",
    "kinetic_images.declared.requirements",
    "kinetic_images.registry.names",
    "kinetic_images.registry.registry",
    "kinetic_images.registry.repository",
    "kinetic_payload.http.retry",
    "kinetic_images.uv",
    "kinetic_images.wheels",
    "kinetic_k8s.accelerators",
    "kinetic_k8s.accelerators.catalogue",
    "kinetic_k8s.accelerators.parse",
    "kinetic_k8s.accelerators.types",
    "kinetic_k8s.errors",
    "kinetic_k8s.manifests.volumes",
    "kinetic_payload.calls.call",
    "kinetic_payload.calls.dump",
    "kinetic_payload.records.batch",
    "kinetic_payload.records.claim",
    "kinetic_payload.records.decode",
    "kinetic_payload.digests",
    "kinetic_payload.errors",
    "kinetic_payload.layout",
    "kinetic_payload.records.job",
    "kinetic_payload.records.outcome",
    "kinetic_payload.records.host_outcome",
    "kinetic_payload.project.roots",
    "kinetic_payload.records.signing",
    "kinetic_payload.project.snapshot",
    "kinetic_payload.stores.store",
    "kinetic_payload.stores",
    "kinetic_payload.testing",
    "kinetic_runner.bundle",
    "kinetic_runner.bundle.build",
)
"""What somebody who uses one package alone may import, besides `kinetic` itself."""


def public_api() -> str:
    """Return every public signature, from the sources: no Python version writes them differently."""
    parts = ["# Every public signature. Record it again with:", f"#   {AGAIN}", ""]
    parts += ["## kinetic", *_facade(), ""]
    for module in PUBLIC:
        parts += [f"## {module}", *_members(_tree(module)), ""]
    return "\n".join(parts).rstrip("\n") + "\n"


def _facade() -> Iterator[str]:
    """What `import kinetic` offers, each from the module that it is loaded from."""
    for name in sorted(set(kinetic.__all__) - {"__version__"}, key=str.lower):
        home = kinetic._MODULE_OF[name]  # type: ignore[attr-defined]
        if home == "errors":
            yield f"{name} from kinetic.errors"
            continue
        yield from _members(_tree(f"kinetic.{home}"), only=name)
    for home, name in GIVEN_OUT:
        yield from _members(_tree(f"kinetic.{home}"), only=name)


def _tree(module: str) -> ast.Module:
    found = importlib.util.find_spec(module)
    assert found is not None, f"{module} is gone"
    assert found.origin is not None
    return ast.parse(Path(found.origin).read_text(encoding="utf-8"))


def _members(tree: ast.Module, *, only: str | None = None) -> Iterator[str]:
    exported = _exported(tree)
    for node in tree.body:
        if isinstance(node, ast.ImportFrom):
            for alias in node.names:
                name = alias.asname or alias.name
                if only is None and (name in exported or alias.asname == alias.name):
                    yield f"{name} from {node.module}"
            continue
        name = _name(node)
        if name is not None and _is_public(name) and only in (None, name):
            yield from _rendered(node, "")


def _exported(tree: ast.Module) -> set[str]:
    for node in tree.body:
        if isinstance(node, ast.Assign) and _name(node) == "__all__":
            return set(ast.literal_eval(node.value))
    return set()


def _name(node: ast.stmt) -> str | None:
    match node:
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
            return name
        case ast.AnnAssign(target=ast.Name(id=name)) | ast.Assign(targets=[ast.Name(id=name)]):
            return name
    return None


def _is_public(name: str) -> bool:
    return not name.startswith("_") or name in {"__init__", "__call__", "__iter__", "__await__"}


def _rendered(node: ast.stmt, indent: str) -> Iterator[str]:
    match node:
        case ast.FunctionDef() | ast.AsyncFunctionDef():
            marks = [ast.unparse(one) for one in node.decorator_list]
            word = "async def" if isinstance(node, ast.AsyncFunctionDef) else "def"
            returns = f" -> {ast.unparse(node.returns)}" if node.returns else ""
            signature = f"{word} {node.name}({ast.unparse(node.args)}){returns}"
            yield indent + "".join(f"@{mark} " for mark in marks) + signature
        case ast.ClassDef():
            marks = [ast.unparse(one) for one in node.decorator_list]
            bases = ", ".join(ast.unparse(one) for one in [*node.bases, *node.keywords])
            head = f"class {node.name}({bases})" if bases else f"class {node.name}"
            yield indent + "".join(f"@{mark} " for mark in marks) + head
            for inner in node.body:
                name = _name(inner)
                if name is not None and _is_public(name):
                    yield from _rendered(inner, indent + "    ")
        case _:
            yield indent + " ".join(ast.unparse(node).split())


def test_no_public_signature_changed_by_accident() -> None:
    recorded = RECORDED.read_text(encoding="utf-8").splitlines()
    changes = list(difflib.unified_diff(recorded, public_api().splitlines(), lineterm="", n=0))

    assert not changes, (
        f"The public interface changed. If that is meant, record it again with: {AGAIN}\n"
        + "\n".join(changes)
    )


# What users were promised: names, order and defaults, written down here and nowhere derived.
NEEDED = inspect.Parameter.empty

RUN = (
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
)
HANDLE = (
    *((name, NEEDED) for name in ("job_id", "backend", "project", "cluster_name", "zone")),
    *((name, NEEDED) for name in ("namespace", "bucket_name", "k8s_name", "image_uri")),
    *((name, NEEDED) for name in ("accelerator", "func_name", "display_name", "created_at")),
    ("group_id", None),
    ("group_kind", None),
    ("group_index", None),
    ("debug", False),
)
DELETION = (("cleanup_timeout", 180), ("cleanup_poll_interval", 2))

SELF = ("self", NEEDED)

PROMISED: dict[str, tuple[tuple[str, object], ...]] = {
    "run": RUN,
    "Data": (("path", NEEDED), ("fuse", False), ("hf_trust_remote_code", False)),
    "JobHandle": HANDLE,
    "JobHandle.from_job_context": tuple(
        (name, NEEDED) for name in ("ctx", "backend_name", "namespace", "k8s_name")
    ),
    "JobHandle.from_dict": (("d", NEEDED),),
    "JobHandle.to_dict": (SELF,),
    "JobHandle.status": (SELF,),
    "JobHandle.logs": (SELF, ("follow", False)),
    "JobHandle.tail": (SELF, ("n", 100)),
    "JobHandle.debug_attach": (SELF, ("local_port", 5678), ("working_dir", None)),
    "JobHandle.result": (
        SELF,
        ("timeout", None),
        ("cleanup", None),
        *DELETION,
        ("stream_logs", None),
        ("on_status_change", None),
    ),
    "JobHandle.cancel": (SELF, *DELETION),
    "JobHandle.cleanup": (SELF, ("k8s", True), ("gcs", True), *DELETION),
    "attach": (("job_id", NEEDED), ("project", None), ("cluster", None)),
    "list_jobs": (("project", None), ("zone", None), ("cluster", None), ("namespace", None)),
}


@pytest.mark.parametrize("name", PROMISED)
def test_promised_parameters_have_their_order_and_defaults(name: str) -> None:
    parameters = inspect.signature(attrgetter(name)(kinetic)).parameters.values()
    positional = [p for p in parameters if p.kind is p.POSITIONAL_OR_KEYWORD]

    assert tuple((p.name, p.default) for p in positional) == PROMISED[name]


def test_further_parameters_are_keywords_with_defaults() -> None:
    parameters = inspect.signature(kinetic.run).parameters.values()
    more = [p for p in parameters if p.name not in dict(RUN)]

    assert [p.name for p in more] == [
        *("timeout", "retries", "preemptions", "cpu", "memory", "shared_memory", "labels"),
        "pod_overrides",
    ]
    assert all(p.kind is p.KEYWORD_ONLY and p.default in (None, 0) for p in more)


def test_the_properties_of_data_are_those_that_were_promised(tmp_path: Path) -> None:
    data = kinetic.Data(str(tmp_path))

    assert (data.path, data.fuse, data.hf_trust_remote_code) == (str(tmp_path), False, False)
    assert (data.is_gcs, data.is_hf, data.is_dir) == (False, False, True)
    assert len(data.content_hash()) == 64


def test_the_statuses_are_those_that_were_promised() -> None:
    names = ["PENDING", "RUNNING", "SUCCEEDED", "FAILED", "NOT_FOUND"]

    assert [(status.name, status.value) for status in kinetic.JobStatus] == [(n, n) for n in names]


@pytest.mark.parametrize(
    ("error", "builtin"),
    [
        (kinetic.InvalidRequestError, ValueError),
        (kinetic.JobError, RuntimeError),
        (kinetic.JobFailedError, RuntimeError),
        (kinetic.JobNotFoundError, LookupError),
        (kinetic.ResultTimeoutError, TimeoutError),
        (kinetic.SubmitError, RuntimeError),
        (kinetic.errors.ObjectNotFoundError, FileNotFoundError),
        (kinetic.errors.StorePermissionError, PermissionError),
    ],
)
def test_an_error_is_also_the_builtin_one_that_was_promised(
    error: type[Exception], builtin: type[Exception]
) -> None:
    assert issubclass(error, builtin)
    assert issubclass(error, kinetic.KineticError)


def test_cleanup_port_forward_takes_the_result_of_debug_attach() -> None:
    assert next(iter(inspect.signature(cleanup_port_forward).parameters)) == "proc"


if __name__ == "__main__":
    RECORDED.write_text(public_api(), encoding="utf-8")
    print(f"Recorded {RECORDED.relative_to(ROOT)}.")
