"""A store and a backend in memory, and a job in them whose end a test decides."""

from __future__ import annotations

import pytest

from kinetic_payload.records.job import JobRecord
from kinetic_servers.fakes import FakeServices


@pytest.fixture
def services() -> FakeServices:
    return FakeServices.make()


@pytest.fixture
def job(services: FakeServices) -> JobRecord:
    return services.job()
