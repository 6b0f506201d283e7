"""What is true of every module of ours: documented, tested, of functions that can be read in one go."""

from __future__ import annotations

import ast
import importlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from kinetic.errors import KineticError

ROOT = Path(__file__).parents[2]
TESTS = ROOT / "tests"
LONGEST_FUNCTION = 70

SOURCES = {
    ".".join(path.relative_to(folder).with_suffix("").parts).removesuffix(".__init__"): path
    for folder in ROOT.glob("packages/*/src")
    for path in sorted(folder.rglob("*.py"))
}
"""Module → file."""

STARTING_POINTS = ("kinetic_cli.__main__", "kinetic_runner.bundle.start")
"""Importing them runs something."""

TESTED_AS = {
    "kinetic.jobs.requirements": "kinetic/backends/gke/test_images.py",
    "kinetic_runner.child.installer": "wire/test_packages.py",
    "kinetic_runner.child.restart": "wire/test_packages.py",
    "kinetic.backends.gke.base_images": "kinetic_cli/commands/test_build_image.py",
    "kinetic.submit.prepare": "kinetic_cli/commands/test_build_image.py",
    "kinetic_images.base_images": "kinetic_cli/commands/test_build_image.py",
    "kinetic_images.bases": "kinetic_images/test_ensure.py",
    "kinetic_payload.files.due": "kinetic_images/test_caches.py",
    "kinetic_images.claims": "kinetic_images/test_ensure.py",
    "kinetic_images.history": "kinetic_images/test_ensure.py",
    "kinetic_images.kept_records": "kinetic_images/test_ensure.py",
    "kinetic_images.lock.own": "local/test_environments.py",
    "kinetic_images.lock.staleness": "kinetic_images/lock/test_project_locks.py",
    "kinetic_images.lock.folders": "kinetic_images/test_ensure.py",
    "kinetic_images.lock.vanished": "kinetic_images/test_ensure.py",
    "kinetic_images.resolutions": "kinetic_images/test_ensure.py",
    "kinetic_images.shared_records": "kinetic_images/test_ensure.py",
    "kinetic_k8s.manifests.components": "kinetic_k8s/manifests/test_workload.py",
    "kinetic_k8s.manifests.hosts": "kinetic_k8s/manifests/test_workload.py",
    "kinetic_k8s.manifests.indexed_job": "kinetic_k8s/manifests/test_workload.py",
    "kinetic_k8s.manifests.jobset": "kinetic_k8s/manifests/test_workload.py",
    "kinetic_k8s.manifests.leaderworkerset": "kinetic_k8s/manifests/test_workload.py",
    "kinetic_k8s.manifests.pathways": "kinetic_k8s/manifests/test_workload.py",
    "kinetic_k8s.manifests.spec": "kinetic_k8s/manifests/test_job.py",
    "kinetic._wire": "kinetic/test_import.py",
    "kinetic.attempt_limits": "kinetic/submit/test_options.py",
    "kinetic.backends.backend": "contract/test_backends.py",
    "kinetic.backends.local.backend": "contract/test_backends.py",
    "kinetic.backends.local.bucket_access": "local/test_bucket_supervisor.py",
    "kinetic.backends.local.checks": "local/test_refusals.py",
    "kinetic.backends.local.detached": "contract/test_backends.py",
    "kinetic.backends.local.keepers": "local/test_homes.py",
    "kinetic.backends.local.launch": "contract/test_backends.py",
    "kinetic.backends.local.liveness": "local/test_supervisor.py",
    "kinetic.backends.local.log_files": "local/test_logs.py",
    "kinetic.backends.local.observation": "local/test_reporting.py",
    "kinetic.backends.local.other_homes": "local/test_homes.py",
    "kinetic.backends.local.other_machines": "local/test_bucket_leases.py",
    "kinetic.backends.local.paths": "contract/test_backends.py",
    "kinetic.backends.local.pending_uploads": "wire/test_job_ends.py",
    "kinetic.backends.local.supervisor.attempt": "local/test_lives.py",
    "kinetic.backends.local.supervisor.descendants": "local/test_supervisor.py",
    "kinetic.backends.local.supervisor.events": "local/test_supervisor.py",
    "kinetic.backends.local.supervisor.main": "local/test_supervisor.py",
    "kinetic.backends.local.supervisor.ports": "local/test_lives.py",
    "kinetic.backends.local.supervisor.power": "local/test_supervisor.py",
    "kinetic.backends.local.supervisor.report": "local/test_reporting.py",
    "kinetic.backends.local.supervisor.runners": "local/test_lives.py",
    "kinetic.backends.local.supervisor.spec": "local/test_supervisor.py",
    "kinetic.backends.local.supervisor.state": "contract/test_backends.py",
    "kinetic.backends.local.watch": "contract/test_backends.py",
    "kinetic.backends.registry": "kinetic/submit/test_request.py",
    "kinetic.debug": "local/test_debugging.py",
    "kinetic.errors": "architecture/test_public_api.py",
    "kinetic.job_status": "architecture/test_public_api.py",
    "kinetic.jobs.fetch": "kinetic/jobs/test_collect.py",
    "kinetic.jobs.lease": "local/test_bucket_leases.py",
    "kinetic.jobs.log_lines": "local/test_logs.py",
    "kinetic.jobs.logs": "kinetic/jobs/test_collect.py",
    "kinetic.jobs.outcome": "local/test_reporting.py",
    "kinetic.jobs.presence": "local/test_bucket_leases.py",
    "kinetic.jobs.record": "kinetic/submit/test_submit.py",
    "kinetic.jobs.records": "kinetic/jobs/test_status.py",
    "kinetic.jobs.runner": "contract/test_backends.py",
    "kinetic.jobs.stored_logs": "kinetic/jobs/test_attempts.py",
    "kinetic.jobs.wait": "kinetic/jobs/test_collect.py",
    "kinetic.light": "kinetic/test_import.py",
    "kinetic.pod_overrides": "kinetic/submit/test_options.py",
    "kinetic.resources": "kinetic/submit/test_options.py",
    "kinetic.settings.home": "local/test_protection.py",
    "kinetic.settings.stat_cache": "kinetic/test_data.py",
    "kinetic.submit.rollback": "kinetic/submit/test_submit.py",
    "kinetic.submit.warnings": "kinetic/submit/test_submit.py",
    "kinetic.target": "kinetic/submit/test_request.py",
    "kinetic.testing.contract": "contract/test_backends.py",
    "kinetic.testing.functions": "contract/test_backends.py",
    "kinetic.testing.protocol": "contract/test_backends.py",
    "kinetic.testing.running": "contract/test_backends.py",
    "kinetic_cli.__main__": "cli/test_process.py",
    "kinetic_cli.app": "cli/test_process.py",
    "kinetic_cli.commands.completion": "cli/test_process.py",
    "kinetic_cli.commands.config": "cli/test_process.py",
    "kinetic_cli.exit_code": "cli/test_process.py",
    "kinetic_cli.lazy_group": "cli/test_process.py",
    "kinetic_cli.main": "cli/test_process.py",
    "kinetic_cli.options": "cli/test_process.py",
    "kinetic_cli.testing": "kinetic_cli/commands/test_jobs.py",
    "kinetic_images.builders.image_layout": "kinetic_images/builders/layers/test_layout.py",
    "kinetic_images.builders.layers.record": "kinetic_images/builders/layers/test_conversion.py",
    "kinetic_images.builders.layers.shared_file": "kinetic_images/builders/layers/test_builder.py",
    "kinetic_images.builders.layers.transfer": "kinetic_images/builders/layers/test_builder.py",
    "kinetic_images.builders.layers.worker": "kinetic_images/builders/layers/test_workers.py",
    "kinetic_images.certificates": "kinetic_images/test_downloads.py",
    "kinetic_images.credentials": "kinetic_images/test_uv.py",
    "kinetic_images.declared.projects": "kinetic_images/test_dependencies.py",
    "kinetic_images.declared.toml_text": "kinetic_images/declared/test_uv_settings.py",
    "kinetic_images.declared.uv_files": "kinetic_images/test_dependencies.py",
    "kinetic_images.errors": "architecture/test_public_api.py",
    "kinetic_images.registry.logins": "kinetic_images/registry/test_credentials.py",
    "kinetic_images.registry.registry": "kinetic_images/registry/test_repository.py",
    "kinetic_images.targets": "kinetic_images/test_dependencies.py",
    "kinetic_images.uv_input": "kinetic_images/test_against_uv.py",
    "kinetic_k8s.cluster.client": "cluster/test_client.py",
    "kinetic_k8s.cluster.cluster": "cluster/test_client.py",
    "kinetic_k8s.cluster.connect": "cluster/test_connect.py",
    "kinetic_k8s.cluster.creation": "cluster/test_creation.py",
    "kinetic_k8s.cluster.google_credentials": "kinetic_k8s/cluster/test_gke.py",
    "kinetic_k8s.cluster.kubeconfig": "cluster/test_connect.py",
    "kinetic_k8s.cluster.logs": "cluster/test_watch.py",
    "kinetic_k8s.cluster.port_stream": "cluster/test_port_forward.py",
    "kinetic_k8s.cluster.queues": "cluster/test_queues.py",
    "kinetic_k8s.cluster.removal": "cluster/test_jobs.py",
    "kinetic_k8s.cluster.resources": "cluster/test_client.py",
    "kinetic_k8s.cluster.translation": "cluster/test_client.py",
    "kinetic_k8s.cluster.watch": "cluster/test_watch.py",
    "kinetic_k8s.errors": "architecture/test_public_api.py",
    "kinetic_k8s.accelerators.machines": "kinetic/submit/test_request.py",
    "kinetic_k8s.manifests.labels": "kinetic_k8s/manifests/test_pod.py",
    "kinetic_k8s.manifests.names": "kinetic_k8s/manifests/test_job.py",
    "kinetic_k8s.manifests.placement": "kinetic_k8s/manifests/test_pod.py",
    "kinetic_k8s.reading.attempts": "kinetic_k8s/reading/test_status.py",
    "kinetic_k8s.reading.causes": "kinetic_k8s/reading/test_diagnosis.py",
    "kinetic_k8s.reading.events": "kinetic_k8s/reading/test_diagnosis.py",
    "kinetic_k8s.reading.silence": "kinetic_k8s/reading/test_diagnosis.py",
    "kinetic_k8s.reading.starting": "kinetic_k8s/reading/test_diagnosis.py",
    "kinetic_k8s.reading.workloads": "kinetic_k8s/reading/test_status.py",
    "kinetic_images.builders.builder": "kinetic_images/test_recipe.py",
    "kinetic_images.lock.install_input": "local/test_environments.py",
    "kinetic_images.lock.packages": "kinetic_images/test_recipe.py",
    "kinetic_images.single_flight": "local/test_environments.py",
    "kinetic_payload.archives.safe_paths": "kinetic_payload/archives/test_extract.py",
    "kinetic_payload.archives.write": "kinetic_payload/archives/test_extract.py",
    "kinetic_payload.calls.assertions": "kinetic_payload/calls/module_globals/test_restore.py",
    "kinetic_payload.calls.by_reference": "kinetic_payload/calls/test_pickler.py",
    "kinetic_payload.calls.byte_counter": "kinetic_payload/calls/test_unpicklable.py",
    "kinetic_payload.calls.classes.attribute_values": "kinetic_payload/calls/classes/test_reduce.py",
    "kinetic_payload.calls.classes.body": "kinetic_payload/calls/classes/test_reduce.py",
    "kinetic_payload.calls.classes.introspection": "kinetic_payload/calls/classes/test_reduce.py",
    "kinetic_payload.calls.classes.pytrees": "local/test_pytrees.py",
    "kinetic_payload.calls.classes.rebuild": "kinetic_payload/calls/classes/test_reduce.py",
    "kinetic_payload.calls.dump": "kinetic_payload/calls/test_call.py",
    "kinetic_payload.calls.exceptions": "kinetic_payload/calls/classes/test_reduce.py",
    "kinetic_payload.calls.function_state": "kinetic_payload/calls/test_annotations.py",
    "kinetic_payload.calls.module_globals.dump": "kinetic_payload/calls/module_globals/test_restore.py",
    "kinetic_payload.calls.rebuild": "kinetic_payload/calls/test_pickler.py",
    "kinetic_payload.calls.value_pickler": "local/test_values.py",
    "kinetic_payload.data.references": "kinetic_payload/calls/test_call.py",
    "kinetic_payload.data.sources": "kinetic/test_data.py",
    "kinetic_payload.distributions": "architecture/test_distributions.py",
    "kinetic_payload.errors": "architecture/test_public_api.py",
    "kinetic_payload.files.temporary": "kinetic_payload/stores/folder/test_store.py",
    "kinetic_payload.lifeline": "local/test_slices.py",
    "kinetic_payload.limits": "kinetic_payload/records/test_hostile_records.py",
    "kinetic_payload.project.hashing": "kinetic_payload/test_digests.py",
    "kinetic_payload.project.ignore_files": "kinetic_payload/project/test_ignore.py",
    "kinetic_payload.project.tree": "kinetic_payload/project/test_snapshot.py",
    "kinetic_payload.records.batch": "architecture/test_records.py",
    "kinetic_payload.records.claim": "architecture/test_records.py",
    "kinetic_payload.records.encode": "architecture/test_records.py",
    "kinetic_payload.records.host_outcome": "architecture/test_records.py",
    "kinetic_payload.records.job": "architecture/test_records.py",
    "kinetic_payload.records.lease": "architecture/test_records.py",
    "kinetic_payload.records.outcome": "architecture/test_records.py",
    "kinetic_payload.stores.folder.listing": "kinetic_payload/stores/folder/test_store.py",
    "kinetic_payload.stores.gcs.bucket": "wire/test_gcs_store_faults.py",
    "kinetic_payload.stores.gcs.checksums": "kinetic_payload/stores/gcs/test_gcs.py",
    "kinetic_payload.stores.gcs.connection": "wire/test_gcs_store_access.py",
    "kinetic_payload.stores.gcs.download": "wire/test_gcs_store_transfers.py",
    "kinetic_payload.stores.gcs.errors": "kinetic_payload/stores/gcs/test_gcs.py",
    "kinetic_payload.stores.gcs.external": "wire/test_gcs_store_access.py",
    "kinetic_payload.stores.gcs.interception": "wire/test_gcs_store_faults.py",
    "kinetic_payload.stores.gcs.metadata_contents": "wire/test_gcs_store_records.py",
    "kinetic_payload.stores.gcs.name_escaping": "kinetic_payload/stores/gcs/test_gcs.py",
    "kinetic_payload.stores.gcs.resumable_download": "wire/test_gcs_store_transfers.py",
    "kinetic_payload.stores.gcs.resumable_upload": "wire/test_gcs_store_transfers.py",
    "kinetic_payload.stores.gcs.retry": "kinetic_payload/stores/gcs/test_gcs.py",
    "kinetic_payload.stores.gcs.service": "wire/test_gcs_store_access.py",
    "kinetic_payload.stores.gcs.store": "wire/test_gcs_store.py",
    "kinetic_payload.stores.gcs.translation": "kinetic_payload/stores/gcs/test_gcs.py",
    "kinetic_payload.stores.gcs.upload": "wire/test_gcs_store_faults.py",
    "kinetic_payload.stores.gcs.upload_content": "wire/test_gcs_store_transfers.py",
    "kinetic_payload.stores.gcs.upload_sessions": "wire/test_gcs_store_transfers.py",
    "kinetic_payload.stores.store": "contract/test_stores.py",
    "kinetic_payload.testing.memory_store": "contract/test_stores.py",
    "kinetic_payload.testing.store_contract": "contract/test_stores.py",
    "kinetic_runner.bundle.start": "kinetic_runner/bundle/test_build.py",
    "kinetic_runner.child.main": "kinetic_runner/parent/test_main.py",
    "kinetic_runner.parent.memory": "kinetic_runner/parent/test_main.py",
    "kinetic_runner.parent.other_hosts": "kinetic_runner/parent/test_report.py",
    "kinetic_runner.parent.signals": "kinetic_runner/parent/test_main.py",
    "kinetic_runner.parent.tee": "kinetic_runner/parent/test_main.py",
    "kinetic_runner.store_retries": "kinetic_runner/parent/test_main.py",
    "kinetic_runner.task": "kinetic_runner/child/test_pipeline.py",
}
"""Modules whose tests have another name, and where they are: parts of one thing that is tested whole."""

NOT_OURS_TO_CATCH = {
    "kinetic_images.registry.connection.NoResponseError": "goes from one part of the registry's client to another",
    "kinetic_images.registry.retry.GaveUpError": "goes from one part of the registry's client to another",
    "kinetic_images.registry.retry.TransientError": "goes from one part of the registry's client to another",
    "kinetic_images.downloads._TransientError": "goes from one part of a download to another",
    "kinetic.jobs.wait.WaitStopped": "goes from one of our threads to another",
    "kinetic.testing.functions.Sad": "is a user's own, in the contract of backends",
    "kinetic_payload.threads.Stopped": "goes from one of our threads to another",
    "kinetic_payload.stores.gcs.download.CorruptedError": "goes from one part of the bucket store to another",
    "kinetic_payload.stores.gcs.resumable_download.ReplacedError": "goes from one part of the bucket store to another",
    "kinetic_payload.stores.gcs.errors.InterceptedResponseError": "goes from one part of the bucket store to another",
    "kinetic_payload.stores.gcs.errors.InvalidResponseError": "goes from one part of the bucket store to another",
    "kinetic_payload.stores.gcs.errors.NotFoundError": "goes from one part of the bucket store to another",
    "kinetic_payload.stores.gcs.errors.PreconditionError": "goes from one part of the bucket store to another",
    "kinetic_payload.stores.gcs.errors.ResponseError": "goes from one part of the bucket store to another",
    "kinetic_payload.stores.gcs.errors.RetryError": "goes from one part of the bucket store to another",
    "kinetic_payload.stores.gcs.errors.UnreachableError": "goes from one part of the bucket store to another",
    "kinetic_runner.child.stop_requests.Terminated": "SIGTERM, which user code must not catch as an Exception",
}
"""Exceptions that no user ever sees, and why they are not errors."""


def places(module: str) -> list[str]:
    """Return where the tests of a module may lie: under its own name, or with those of its folder."""
    package, *folders, name = module.split(".")
    near = "/".join([package, *folders])
    own = [
        f"{near}/test_{name}.py",
        *([f"{near.rpartition('/')[0]}/test_{folders[-1]}.py"] if folders else []),
    ]
    tier = {"kinetic": "local", "kinetic_cli": "cli"}.get(package)
    return [*own, *([f"{tier}/test_{name}.py"] if tier else [])]


def trees() -> Iterator[tuple[str, ast.Module]]:
    for module, path in SOURCES.items():
        yield module, ast.parse(path.read_text(encoding="utf-8"))


def test_every_module_begins_with_a_line_that_says_what_it_is() -> None:
    missing = [module for module, tree in trees() if not (ast.get_docstring(tree) or "").strip()]

    assert missing == []


def test_every_module_has_a_test_of_its_name_or_a_place_where_it_is_tested() -> None:
    untested = [
        module
        for module, path in SOURCES.items()
        if path.name != "__init__.py" and module not in TESTED_AS
        if not any((TESTS / place).is_file() for place in places(module))
    ]

    assert untested == [], (
        "write tests/<package>/<folder>/test_<module>.py, or say in TESTED_AS where it is"
    )


def test_the_places_where_modules_are_tested_are_there() -> None:
    assert [module for module in TESTED_AS if module not in SOURCES] == []
    assert [place for place in TESTED_AS.values() if not (TESTS / place).is_file()] == []


def test_no_function_is_too_long_to_be_understood_as_one() -> None:
    functions = [
        (f"{module}:{node.lineno} {node.name}", (node.end_lineno or 0) - node.lineno + 1)
        for module, tree in trees()
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        # A signature and a docstring are read, not understood.
        if _without_head(node) > LONGEST_FUNCTION
    ]

    assert functions == []


def _without_head(node: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    body = node.body[1:] if ast.get_docstring(node) and len(node.body) > 1 else node.body
    return (node.end_lineno or 0) - body[0].lineno + 1


@pytest.mark.parametrize("package", sorted({module.partition(".")[0] for module in SOURCES}))
def test_every_exception_of_ours_is_a_kinetic_error(package: str) -> None:
    strays = []
    for module in SOURCES:
        if module.partition(".")[0] != package or module in STARTING_POINTS:
            continue
        for name, value in vars(importlib.import_module(module)).items():
            if not (isinstance(value, type) and issubclass(value, BaseException)):
                continue
            where = f"{value.__module__}.{name}"
            if value.__module__ == module and not issubclass(value, KineticError):
                strays += [where] if where not in NOT_OURS_TO_CATCH else []

    assert strays == [], "put it under KineticError, or say in NOT_OURS_TO_CATCH why not"
