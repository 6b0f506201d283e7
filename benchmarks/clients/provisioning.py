"""A program that looks at a cluster, and bare clients that send the same requests one after the other."""

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from urllib.parse import urlsplit

import urllib3
from google.api_core.client_options import ClientOptions
from google.cloud import container_v1, service_usage_v1

from kinetic.provisioning.clusters import compare
from kinetic.provisioning.desired import APIS, ClusterOptions
from kinetic.provisioning.doctor import diagnose
from kinetic.provisioning.status import cluster_status
from kinetic.settings.settings import Settings, environment
from kinetic_k8s.cluster import gke
from kinetic_payload.http.google import fresh_credentials

ENVIRONMENT = environment()
PROJECT = ENVIRONMENT["KINETIC_PROJECT"]
CLUSTER = f"projects/{PROJECT}/locations/us-central1/clusters/kinetic-cluster"


def chain(services: int, clusters: int, objects: int) -> Callable[[], object]:
    """Return what sends so many requests for APIs, for the cluster and to the cluster, each kind over a new connection."""

    def options(service: str) -> ClientOptions:
        address = ENVIRONMENT[f"CLOUDSDK_API_ENDPOINT_OVERRIDES_{service}"]
        return ClientOptions(api_endpoint=urlsplit(address).netloc)

    parent = f"projects/{PROJECT}"
    asked = service_usage_v1.BatchGetServicesRequest(
        parent=parent, names=[f"{parent}/services/{each}" for each in APIS]
    )
    urllib3.disable_warnings()

    def run() -> None:
        credentials = fresh_credentials(gke.SCOPES)
        for _ in range(services):
            service_usage_v1.ServiceUsageClient(
                credentials=credentials, client_options=options("SERVICEUSAGE")
            ).batch_get_services(request=asked)
        for _ in range(clusters):
            found = container_v1.ClusterManagerClient(
                credentials=credentials, client_options=options("CONTAINER")
            ).get_cluster(name=CLUSTER)
        pool = urllib3.PoolManager(cert_reqs="CERT_NONE", assert_hostname=False)
        for _ in range(objects):
            headers = {"Authorization": "Bearer kube-bed-admin"}
            pool.request(
                "GET", f"https://{found.endpoint}/api/v1/namespaces/default", headers=headers
            )

    return run


def main() -> None:
    settings = Settings.from_environment()
    options = ClusterOptions(accelerators=["cpu"])

    def anew(look: Callable[[], object]) -> Callable[[], object]:
        def run() -> object:
            gke.gke_api.cache_clear()  # As in a new process.
            return look()

        return run

    looks = {
        "up": anew(lambda: compare(settings, options)),
        "up floor": chain(1, 2, 6),
        "doctor": anew(lambda: diagnose(settings)),
        "doctor floor": chain(1, 3, 10),
        "status": anew(lambda: cluster_status(settings)),
        "status floor": chain(0, 1, 3),
    }
    found = []
    for _ in range(int(sys.argv[2]) + 1):
        seconds = {}
        for name, look in looks.items():
            began = time.perf_counter()
            look()
            seconds[name] = time.perf_counter() - began
        found.append(seconds)
    Path(sys.argv[1]).write_text(json.dumps(found[1:]))


if __name__ == "__main__":
    main()
