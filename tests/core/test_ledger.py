"""Contract 1: every model call ends in exactly one bucket."""

from agentgym.core.ledger import Ledger


def test_buckets_add_up_to_the_calls_made() -> None:
    ledger = Ledger()
    ledger.add(["trained", "masked:malformed", "trained"], calls=3)
    ledger.add(["dropped:timeout", "dropped:timeout"], calls=2)
    assert (ledger.trained, ledger.masked, ledger.dropped) == (2, 1, 2)
    assert ledger.adds_up


def test_a_call_without_a_bucket_shows() -> None:
    ledger = Ledger()
    ledger.add(["trained"], calls=2)
    assert not ledger.adds_up


def test_the_ledger_round_trips_as_json() -> None:
    ledger = Ledger()
    ledger.add(["trained", "masked:malformed"], calls=2)
    assert Ledger.model_validate_json(ledger.model_dump_json()) == ledger
