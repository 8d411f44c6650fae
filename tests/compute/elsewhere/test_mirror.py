"""How long it takes to bring home what a run makes."""

import pytest

from agentgym.compute.elsewhere.mirror import Transfers


def test_the_largest_transfer_at_the_present_speed() -> None:
    transfers = Transfers()
    assert transfers.longest_s is None
    transfers.note(0, 5.0)  # nothing came
    assert transfers.longest_s is None
    transfers.note(100_000_000, 10.0)
    assert transfers.longest_s == pytest.approx(10.0)
    transfers.note(1_000, 1.0)  # a small one says nothing of the speed
    assert transfers.longest_s == pytest.approx(11.0, abs=0.1)
    transfers.note(50_000_000, 50.0)  # the network became slow
    assert transfers.longest_s == pytest.approx(100.0)
    for _ in range(20):
        transfers.note(50_000_000, 5.0)
    assert 10.0 < transfers.longest_s < 20.0
