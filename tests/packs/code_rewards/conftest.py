"""A sandbox for all tests of rewards."""

from collections.abc import Iterator

import pytest

from agentgym.sandbox import Sandbox


@pytest.fixture(scope="session")
def sandbox() -> Iterator[Sandbox]:
    made = Sandbox()
    yield made
    made.close()
