from __future__ import annotations

import threading
import time

import pytest
import urllib3

from kinetic_images.testing.registry import Fault, Faults, RegistryServer


def test_a_fault_hits_the_requests_that_match_as_often_as_it_says() -> None:
    faults = Faults()
    fault = faults.add(method="GET", path="/v2/*/manifests/*", after=1, times=2, status=503)
    requests = [
        ("GET", "/v2/a/manifests/1"),
        ("PUT", "/v2/a/manifests/1"),
        ("GET", "/v2/a/blobs/1"),
    ]

    hit = [faults.strike(*request).status for request in requests * 4]
    assert hit == [None, None, None, 503, None, None, 503, None, None, None, None, None]
    assert fault.hits == 2


def test_without_a_fault_a_request_has_none() -> None:
    faults = Faults()
    faults.add(Fault(status=500, times=None))
    faults.clear()

    assert faults.strike("GET", "/") == Fault()


def test_a_fault_responds_in_the_form_of_a_registry() -> None:
    with RegistryServer() as server:
        server.faults.add(status=429, code="TOOMANYREQUESTS", message="slow", retry_after="7")
        answer = urllib3.request("GET", f"http://{server.host}/v2/", retries=False)

        assert (answer.status, answer.headers["Retry-After"]) == (429, "7")
        assert answer.json()["errors"][0]["code"] == "TOOMANYREQUESTS"
        assert urllib3.request("GET", f"http://{server.host}/v2/", retries=False).status == 200


def test_a_stall_ends_when_it_is_released_or_the_server_stops() -> None:
    with RegistryServer() as server:
        fault = server.faults.add(stall=60.0)
        threading.Timer(0.2, fault.release).start()
        before = time.monotonic()

        assert urllib3.request("GET", f"http://{server.host}/v2/", retries=False).status == 200
        assert 0.1 < time.monotonic() - before < 10
        server.faults.add(stall=60.0)
        threading.Timer(0.2, server.stop).start()
        with pytest.raises(urllib3.exceptions.HTTPError):
            urllib3.request("GET", f"http://{server.host}/v2/", retries=False, timeout=20)
        assert time.monotonic() - before < 15
