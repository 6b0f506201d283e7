"""What a submit passes on to the cluster, and how data that is mounted reaches the function."""

from __future__ import annotations

import hashlib
import inspect
import json
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import urllib3

import kinetic
from kinetic_k8s.manifests.volumes import DRIVER

ARGUMENTS = {
    "accelerator": "cpu:1",
    "zone": "us-east1-b",
    "project": "my-project",
    "cluster": "my-cluster",
    "backend": "gke",
    "capture_env_vars": ["TOKEN"],
    "spot": True,
    "output_dir": "gs://jobs/outputs-of-mine",
    "timeout": 77,
    "retries": 3,
    "preemptions": 5,
    "cpu": "20m",
    "memory": "64Mi",
    "shared_memory": "32Mi",
    "labels": {"team": "vision", "kueue.x-k8s.io/priority-class": "low"},
    "pod_overrides": {"spec": {"priorityClassName": "kube-bed-low"}},
}
SCRIPT = """
    import os, json, kinetic

    arguments = json.loads(os.environ["ARGUMENTS"])
    arguments["volumes"] = {"/photos": kinetic.Data("photos")}

    @kinetic.run(container_image=os.environ["IMAGE"], namespace=os.environ["KINETIC_NAMESPACE"], **arguments)
    def function():
        pass

    if __name__ == "__main__":
        print(function.run_async().job_id)
"""


def test_every_argument_reaches_the_job_or_its_record(project: Any, bed: Any) -> None:
    elsewhere = {"container_image", "namespace", "volumes"}
    # The first needs an image that Kinetic makes, the second a terminal.
    refused = {"base_image_repo", "debug"}
    assert {*ARGUMENTS, *elsewhere, *refused} == set(inspect.signature(kinetic.run).parameters)
    (project.root / "photos").mkdir()
    (project.root / "photos" / "one.txt").write_text("1")

    submitted = project.script(SCRIPT, ARGUMENTS=json.dumps(ARGUMENTS), TOKEN="hunter2")

    job_id = submitted.split()[-1]
    (jobset,) = project.objects("jobset", job_id)
    (secret,) = project.objects("secret", job_id)
    handle = project.bucket.read("jobs", f"{job_id}/handle.json")
    record = json.loads(handle.partition(b"\n")[0])
    project.kinetic("jobs", "cancel", job_id)
    project.kinetic("jobs", "cleanup", job_id)
    template = jobset["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]
    pod = template["spec"]
    (container,) = pod["containers"]
    flags = " ".join(container["command"])
    assert jobset["metadata"]["namespace"] == project.namespace
    assert container["image"] == record["image_uri"]
    assert record["image_uri"].startswith(f"{project.image.rpartition(':')[0]}@sha256:")
    assert container["resources"] == {
        "limits": {"cpu": "20m", "memory": "64Mi"},
        "requests": {"cpu": "20m", "memory": "64Mi"},
    }
    shared = {"medium": "Memory", "sizeLimit": "32Mi"}
    assert shared in [volume.get("emptyDir") for volume in pod["volumes"]]
    assert pod["nodeSelector"] == {"cloud.google.com/gke-spot": "true"}
    assert "cloud.google.com/gke-spot" in [one["key"] for one in pod["tolerations"]]
    assert pod["priorityClassName"] == "kube-bed-low"
    assert jobset["spec"]["failurePolicy"]["maxRestarts"] == record["retries"] == 3
    assert f"--record-digest {hashlib.sha256(handle).hexdigest()}" in flags
    assert (record["timeout"], record["preemptions"]) == (77, 5)
    assert container["envFrom"] == [{"secretRef": {"name": secret["metadata"]["name"]}}]
    assert list(secret["data"]) == record["captured_env"] == ["TOKEN"]
    variables = {one["name"]: one.get("value") for one in container["env"]}
    assert variables["KINETIC_OUTPUT_DIR"] == record["output_dir"] == "gs://jobs/outputs-of-mine"
    for labels in (jobset["metadata"]["labels"], template["metadata"]["labels"]):
        assert labels["team"] == record["labels"]["team"] == "vision"
        assert labels["kueue.x-k8s.io/priority-class"] == "low"
        assert labels["kinetic.dev/job-id"] == job_id
        assert labels["kinetic.dev/submitter"]
    assert jobset["metadata"]["annotations"]["kinetic.dev/client"].startswith("kinetic ")
    seen = {name: record[name] for name in ("project", "zone", "cluster_name", "backend", "spot")}
    assert seen == {
        "project": "my-project",
        "zone": "us-east1-b",
        "cluster_name": "my-cluster",
        "backend": "gke",
        "spot": True,
    }
    assert any(name.startswith("data/") for name in project.bucket.names("jobs"))


@pytest.fixture
def driver(bed: Any, drivers: None) -> Iterator[None]:
    """The object that announces the driver of buckets; there is no driver behind it."""
    announced = {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "CSIDriver",
        "metadata": {"name": DRIVER},
        "spec": {"attachRequired": False, "volumeLifecycleModes": ["Ephemeral"]},
    }
    bed.kubectl("apply", "-f", "-", given=json.dumps(announced))
    yield
    bed.kubectl("delete", "csidriver", DRIVER, "--ignore-not-found")


@pytest.mark.usefixtures("driver")
def test_the_function_finds_mounted_data_as_an_argument_and_as_a_volume(
    project: Any, relay: Any, tmp_path: Path
) -> None:
    bucket = f"photos-{tmp_path.name[-4:]}".lower().replace("_", "-")
    project.bucket.create_bucket(bucket)
    (tmp_path / "mounted" / "2026").mkdir(parents=True)
    (tmp_path / "mounted" / "2026" / "a.txt").write_text("of the bucket")
    attributes: list[dict[str, str]] = []

    def stand_in(created: Any) -> None:
        """Mount a folder of this machine in place of each folder of a bucket."""
        if created["kind"] != "JobSet":
            return
        (job,) = created["spec"]["replicatedJobs"]
        for volume in job["template"]["spec"]["template"]["spec"]["volumes"]:
            if csi := volume.pop("csi", None):
                attributes.append(csi["volumeAttributes"])
                folder = csi["volumeAttributes"]["mountOptions"].partition("only-dir=")[2]
                path = tmp_path / "mounted" / Path(folder).name
                volume["hostPath"] = {"path": str(path if path.is_dir() else tmp_path / "mounted")}

    relay.change = stand_in
    for name in ("2026/a.txt", "2026/b.txt"):
        url = (
            f"{project.bucket.endpoint}/upload/storage/v1/b/{bucket}/o?uploadType=media&name={name}"
        )
        assert urllib3.request("POST", url, body=b"of the bucket").status == 200
    value = project.script(
        f"""
        import json, os, kinetic
        from pathlib import Path
        from pods import small

        @kinetic.run(
            "cpu", container_image=os.environ["IMAGE"], memory="128Mi", pod_overrides=small(),
            volumes={{"/photos": kinetic.Data("gs://{bucket}/2026/", fuse=True)}},
        )
        def function(folder, file):
            return [
                (Path("/photos") / "a.txt").read_text(), (Path(folder) / "a.txt").read_text(),
                Path(file).read_text(), str(folder), str(file),
            ]

        if __name__ == "__main__":
            print(json.dumps(function(
                kinetic.Data("gs://{bucket}/2026/", fuse=True),
                kinetic.Data("gs://{bucket}/2026/a.txt", fuse=True),
            )))
        """,
        KUBECONFIG=relay.kubeconfig(project.root.parent),
    )

    *_, shown = value.splitlines()
    *texts, folder, file = json.loads(shown)
    assert texts == ["of the bucket"] * 3
    assert folder.startswith("/kinetic/data/d")
    assert file.endswith("/a.txt")
    assert {one["bucketName"] for one in attributes} == {bucket}
    assert {one["mountOptions"] for one in attributes} == {"implicit-dirs,only-dir=2026"}


@pytest.mark.usefixtures("drivers")
def test_an_unsupported_job_is_refused_before_anything_is_uploaded(project: Any) -> None:
    stored = project.bucket.names("jobs")
    (project.root / "photos.txt").write_text("1")
    shown = project.script(
        """
        import os, kinetic

        def function(data=None):
            pass

        def refused(data=None, **arguments):
            given = {"accelerator": "cpu", "container_image": os.environ["IMAGE"], **arguments}
            try:
                print(kinetic.run(**given)(function).run_async(data).job_id)
            except kinetic.KineticError as error:
                print(str(error).replace(chr(10), " "))

        if __name__ == "__main__":
            refused(kinetic.Data("photos.txt", fuse=True))
            refused(volumes={"/photos": kinetic.Data("photos.txt", fuse=True)})
            refused(namespace="no-such-namespace")
            refused(pod_overrides={"spec": {"noSuchField": 1}})
            refused(accelerator="gpu-l4", backend="pathways")
            os.environ["KINETIC_SERVICE_ACCOUNT"] = "no-such-account"
            refused()
            os.environ["KINETIC_KUBE_CONTEXT"] = "kube-bad"
            refused()
        """
    )

    expected = (
        f"does not have the driver {DRIVER}",
        "GcsFuseCsiDriver=ENABLED",
        "There is no namespace 'no-such-namespace'",
        'template.spec.noSuchField"',
        "Pathways supports TPU slices only",
        "There is no service account 'no-such-account'",
        "kube-bad",
    )
    lines = shown.splitlines()
    for line, part in zip(lines, expected, strict=True):
        assert part in line
    assert project.bucket.names("jobs") == stored


def test_on_gke_a_missing_pool_is_refused_and_a_bucket_far_away_is_named(
    project: Any, gke: Any, bed: Any, tmp_path: Path
) -> None:
    far = f"far-{secrets.token_hex(4)}"
    set_far, store_far = f"set-{far}", f"store-{far}"
    for name in (far, set_far, store_far):
        project.bucket.create_bucket(name, location="EUROPE-WEST4")
    url = f"{project.bucket.endpoint}/upload/storage/v1/b/{set_far}/o?uploadType=media&name=a"
    assert urllib3.request("POST", url, body=b"1").status == 200
    gke.identity.token = "kube-bed-admin"
    ordinary = {"name": "ordinary", "config": {"machine_type": "e2-standard-8", "spot": True}}
    gke.add(
        "demo",
        server=bed.environment["KUBE_BED_SERVER"],
        ca=Path(bed.environment["KUBE_BED_CA"]).read_text(),
        node_pools=[{**ordinary, "initial_node_count": 1}],
    )
    (project.root / "main.py").write_text(
        f"""
import os, kinetic

def function(data=None):
    pass

if __name__ == "__main__":
    given = {{"container_image": os.environ["IMAGE"], "memory": "64Mi"}}
    try:
        kinetic.run("gpu-l4", **given)(function).run_async()
    except kinetic.InvalidRequestError as error:
        print(error)
    far_away = kinetic.run("cpu:1:spot", output_dir="gs://{far}/out", **given)(function)
    job = far_away.run_async(kinetic.Data("gs://{set_far}/a"))
    job.cancel()
    job.cleanup()
"""
    )

    done = project.run(
        "main.py",
        **gke.environment,
        KINETIC_KUBE_CONTEXT="",
        KINETIC_PROJECT="test-project",
        KINETIC_CLUSTER="demo",
        KINETIC_STORE=f"gs://{store_far}",
    )

    assert done.returncode == 0, done.stderr
    assert "The cluster 'demo' has no machines for l4" in done.stdout
    for name in (far, set_far, store_far):
        assert f"gs://{name} is in europe-west4, and the cluster is in us-central1" in done.stderr
    kept = project.bucket.names(store_far)
    assert [name for name in kept if not name.startswith(("contexts/", "logs/"))] == []
