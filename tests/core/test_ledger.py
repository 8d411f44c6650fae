"""Contract 1: every model call ends in exactly one bucket."""

from agentgym.core.ledger import TRAINED, Bucket, Ledger


def test_buckets_add_up_to_the_calls_made() -> None:
    ledger = Ledger()
    ledger.add([TRAINED, Bucket("masked", "malformed"), TRAINED], roles=["agent"] * 3)
    ledger.add([Bucket("dropped", "timeout")] * 2, roles=["agent"] * 2)
    assert (ledger.trained, ledger.masked) == (2, {"malformed": 1})
    assert ledger.dropped == {"timeout": 2}
    assert ledger.adds_up


def test_a_call_without_a_bucket_shows() -> None:
    ledger = Ledger()
    ledger.add([TRAINED], roles=["agent", "agent"])
    assert not ledger.adds_up


def test_the_ledger_round_trips_as_json() -> None:
    ledger = Ledger()
    ledger.add([TRAINED, Bucket("masked", "malformed")], roles=["planner", "worker"])
    assert Ledger.model_validate_json(ledger.model_dump_json()) == ledger
