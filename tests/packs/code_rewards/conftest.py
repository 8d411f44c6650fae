"""A sandbox for all tests of rewards."""

from collections.abc import Iterator

import pytest

from agentgym.sandbox import LazySandbox


@pytest.fixture(scope="session")
def sandbox() -> Iterator[LazySandbox]:
    made = LazySandbox()
    yield made
    made.close()
