"""The listener and the settings of a forwarder; tests/cluster/gke/test_debug.py runs one."""

from __future__ import annotations

import pytest

from kinetic.errors import InvalidRequestError
from kinetic.jobs.port_forwarder import listen


def test_it_listens_on_the_loopback_interface_and_names_a_port_that_cannot_be_used() -> None:
    with listen(0) as listener:
        address, port = listener.getsockname()
        assert address == "127.0.0.1"
        with pytest.raises(InvalidRequestError, match=f"Port {port} .*in use") as refused:
            listen(port)
    assert "--port" in refused.value.hint
    with pytest.raises(InvalidRequestError, match=r"Port 65536 .*no such port"):
        listen(65536)
