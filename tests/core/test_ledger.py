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


def test_the_buckets_of_all_roles_add_up() -> None:
    ledger = Ledger()
    ledger.add([TRAINED, Bucket("masked", "x"), TRAINED], roles=["a", "b", "b"])
    assert [part.calls for part in ledger.roles.values()] == [1, 2]
    assert ledger.adds_up
    ledger.roles["b"].trained = 0
    assert not ledger.adds_up


def test_prompts_that_are_too_long_are_told_with_a_remedy() -> None:
    ledger = Ledger()
    assert ledger.why_untrained() == ""
    ledger.add([Bucket("masked", "malformed")], roles=["agent"])
    assert ledger.why_untrained() == ", most of them because of: malformed"
    long = Bucket("dropped", "no answer: context_length_exceeded")
    ledger.add([long] * 2, roles=["agent"] * 2)
    assert "choose a model with a longer one (--model)" in ledger.why_untrained()
