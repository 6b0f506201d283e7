"""Stand-ins for the images of Pathways, in the test bed's registry: they check how they are started.

They are the bed's Python image with another entry point. The resource manager counts the workers that connect
to it, the proxy asks it, and the function asks the proxy: so all of them find each other, or the job fails.
"""

from __future__ import annotations

import hashlib
import json
from typing import Any

from images import Registry

from kinetic_k8s.manifests.jobset import EXCLUSIVE

SCRATCH = "gs://scratch/pathways"
_COMMON = f"""
import os, socket, socketserver, sys, threading, time
def refuse(why):
    sys.exit(f"stand-in: {{why}}")
arguments = dict(each.removeprefix("--").split("=", 1) for each in sys.argv[1:])
def expect(found, **expected):
    for name, value in expected.items():
        if found.get(name) != value:
            refuse(f"{{name}} is {{found.get(name)!r}}, not {{value!r}}: {{sys.argv}}")
def ask(host, port, line):
    deadline = time.monotonic() + 60
    while True:
        try:
            with socket.create_connection((host, port), 5) as connection:
                connection.sendall(line.encode() + b"\\n")
                return connection.makefile().readline().strip()
        except OSError as error:
            if time.monotonic() > deadline:
                refuse(f"{{host}}:{{port}}: {{error}}")
            time.sleep(0.2)
def serve(port, answer):
    class Handler(socketserver.StreamRequestHandler):
        def handle(self):
            self.wfile.write(str(answer(self.rfile.readline().decode().strip())).encode() + b"\\n")
    socketserver.ThreadingTCPServer.allow_reuse_address = True
    with socketserver.ThreadingTCPServer(("", port), Handler) as server:
        server.serve_forever()
expect(arguments, gcs_scratch_location={SCRATCH!r})
"""
SERVER = (
    _COMMON
    + """
if "node_type" in arguments:
    expect(arguments, server_port="29001", node_type="resource_manager", instance_count="1",
           instance_type="tpuv5:2x2x2")
    expect(os.environ, TPU_SKIP_MDS_QUERY="true")
    workers = set()
    def answer(line):
        if line.startswith("worker"):
            workers.add(line)
        return len(workers)
    serve(29001, answer)
head = os.environ["PATHWAYS_HEAD"]
expect(arguments, server_port="29005", resource_manager_address=f"{head}:29001")
expect(os.environ, MEGASCALE_NUM_SLICES="1", MEGASCALE_SLICE_ID="0", MEGASCALE_COORDINATOR_ADDRESS=head)
print("worker", ask(head, 29001, f"worker {socket.gethostname()}"), flush=True)
while True:
    time.sleep(1)
"""
)
PROXY = (
    _COMMON
    + """
head = os.environ["PATHWAYS_HEAD"]
expect(arguments, server_port="29000", resource_manager_address=f"{head}:29001")
expect(os.environ, IFRT_PROXY_USE_INSECURE_GRPC_CREDENTIALS="true")
serve(29000, lambda line: ask(head, 29001, line))
"""
)
FUNCTION = """
import os, signal, socket, sys, time
signal.signal(signal.SIGTERM, lambda *_: os._exit(143))
assert os.environ["JAX_BACKEND_TARGET"] == "grpc://localhost:29000" and os.environ["XCLOUD_ENVIRONMENT"] == "GCP"
while True:
    try:  # A sidecar that was started may not listen yet.
        with socket.create_connection(("localhost", 29000), 60) as connection:
            connection.sendall(b"devices\\n")
            if (workers := connection.makefile().readline().strip()) == "2":
                break
    except OSError:
        pass
    time.sleep(0.2)
print("workers", workers, flush=True)
"""
"""The beginning of a function: it waits until the proxy reports both workers."""


def push(address: str, name: str, program: str) -> str:
    """Push an image that runs *program*; return its address."""
    registry = Registry(address)
    base, config = registry.base()
    # The first process of a pod ignores SIGTERM until it has a handler; a shell has one at once.
    run = 'trap \'exit 143\' TERM; python3 -u -c "$0" "$@" & wait $!'
    config["config"] = {**config["config"], "Entrypoint": ["sh", "-c", run, program]}
    tag = hashlib.sha256(json.dumps(config).encode()).hexdigest()[:12]
    return registry.store(f"kinetic-tests/{name}", tag, base, config)


WORKERS = """
import socket, time

def workers():
    'Return how many workers the proxy knows, once both are there.'
    while True:
        try:
            with socket.create_connection(("localhost", 29000), 60) as connection:
                connection.sendall(b"devices\\n")
                if (found := connection.makefile().readline().strip()) == "2":
                    return found
        except OSError:
            pass
        time.sleep(0.2)
"""


def share_the_node_pool(created: Any) -> None:
    """Let workers run beside their head: the test cluster has one node, so one node pool."""
    if created["kind"] == "JobSet":
        for job in created["spec"]["replicatedJobs"]:
            job["template"]["metadata"].get("annotations", {}).pop(EXCLUSIVE, None)
