"""From rollouts to sequences: exact merging, masks that fail closed, the ledger."""

from collections.abc import Mapping, Sequence

import pytest

from agentgym.core.components import Components, label_tokens
from agentgym.core.config import Algorithm
from agentgym.core.formats import FORMATS
from agentgym.core.ledger import (
    NO_COMPARISON,
    NO_VARIANCE,
    ROLE_NOT_TRAINED,
    TOO_LONG,
    TRAINED,
    Bucket,
)
from agentgym.core.tools import ToolOutcome
from agentgym.core.trajectory import ModelCall, ToolCall, Trajectory
from agentgym.train.batch import BatchBuilder, Credited, Label
from tests.engines.local.rollouts import TRAINABLE, broadcast, call, rollout

# A vocabulary of its own: id 1 ends, 2 opens a call, 3 its skeleton, 4 an argument.
TEXTS = {
    1: "<|end|>",
    2: "<tool_call>",
    3: '{"name": "f", "arguments": ',
    4: '{"a": 1}',
    5: "}",
    6: "</tool_call>",
    7: "words ",
}
CALL = [2, 3, 4, 5, 6, 1]
PROMPT = [9, 9, 9]


def labelled(call: ModelCall) -> list[Components]:
    pieces = [TEXTS[i] for i in call.response_ids]
    reading = FORMATS["hermes"].read("".join(pieces))
    return label_tokens(pieces, reading.spans, ended=call.response_ids[-1] == 1)


def build(
    groups: Sequence[Sequence[Trajectory]],
    *,
    trainable: Mapping[str, bool] = TRAINABLE,
    rewards: Mapping[str, Sequence[float]] | None = None,
    label: Label | None = None,
    failure_cost: float = 0.0,
    train_roles: Sequence[str] | None = None,
    longest: int | None = None,
    algorithm: Algorithm = "rloo",
) -> Credited:
    builder = BatchBuilder(
        algorithm=algorithm,
        trainable=trainable,
        label=label or labelled,
        failure_cost=failure_cost,
        train_roles=train_roles,
        longest=longest,
    )
    if rewards is None:
        return builder.build(groups, broadcast)
    return builder.build(groups, lambda rollout: rewards[rollout.rollout_id])


def pair(*calls: object) -> list[list[Trajectory]]:
    """Return a group of a rollout with ``calls`` and one with another reward."""
    other = rollout("other", 0.0, [call(PROMPT, CALL)])
    return [[rollout("it", 1.0, calls), other]]  # type: ignore[arg-type]


def test_calls_that_continue_each_other_exactly_become_one_sequence() -> None:
    second = [*PROMPT, *CALL, 8, 8]
    batch = build(pair(call(PROMPT, CALL, -1.0), call(second, [7, 1], -3.0)))

    first = batch.batch.sequences[0]
    assert first.ids == [*second, 7, 1]
    assert [t.position for t in first.trained] == [3, 4, 5, 6, 7, 8, 11, 12]
    assert [t.logprob for t in first.trained] == [-1.0] * 6 + [-3.0] * 2
    assert len(batch.batch.sequences) == 2


def test_a_long_rollout_weighs_more_unless_it_is_grpos() -> None:
    """Advantages are +1 and -1; the loss is a mean over the 14 trained tokens."""
    second = [*PROMPT, *CALL, 8, 8]
    groups = pair(call(PROMPT, CALL), call(second, [7, 1]))

    for algorithm, weighs in (("dapo", (8.0, -6.0)), ("grpo", (7.0, -7.0))):
        sequences = build(groups, algorithm=algorithm).batch.sequences  # type: ignore[arg-type]
        assert [len(s.trained) for s in sequences] == [8, 6]
        sums = [sum(t.advantage for t in s.trained) for s in sequences]
        assert sums == pytest.approx(weighs)


def test_ppo_trains_on_attempts_that_all_fail() -> None:
    groups = [[rollout(name, 0.0, [call(PROMPT, CALL)]) for name in ("it", "other")]]

    assert build(groups).ledger["it"] == [Bucket("masked", NO_VARIANCE)]
    made = build(groups, algorithm="ppo")
    assert made.ledger["it"] == [TRAINED]
    assert made.skipped_groups == 0


@pytest.mark.parametrize("rewards", [(1.0, 0.0), (1.0, 1.0), (0.0, 0.0)])
def test_a_group_has_a_signal_unless_it_would_be_skipped(
    rewards: tuple[float, float],
) -> None:
    group = [
        rollout(name, reward, [call(PROMPT, CALL)])
        for name, reward in zip(("it", "other"), rewards, strict=True)
    ]
    builder = BatchBuilder("dapo", TRAINABLE, labelled, 0.0)

    made = builder.build([group], broadcast)

    assert builder.has_signal(group, broadcast) is (made.skipped_groups == 0)
    assert builder.has_signal(group, broadcast) is (rewards[0] != rewards[1])


def test_a_prompt_that_differs_in_one_token_starts_another_sequence() -> None:
    other = [*PROMPT, *CALL[:-1], 7, 8]
    batch = build(pair(call(PROMPT, CALL), call(other, [7, 1])))

    assert [s.ids for s in batch.batch.sequences[:2]] == [
        [*PROMPT, *CALL],
        [*other, 7, 1],
    ]
    assert batch.ledger["it"] == [TRAINED, TRAINED]


def test_a_call_whose_spans_are_not_found_fails_closed() -> None:
    broken = call([*PROMPT, 5], [7, 7, 1])

    def label(call: ModelCall) -> list[Components] | None:
        return None if call.response_ids == [7, 7, 1] else labelled(call)

    batch = build(pair(call(PROMPT, CALL), broken), label=label)

    assert batch.ledger["it"] == [
        TRAINED,
        Bucket("masked", "spans not found in the token ids"),
    ]
    assert all(s.ids != [*PROMPT, 5, 7, 7, 1] for s in batch.batch.sequences)


def test_calls_without_ids_or_log_probabilities_are_masked() -> None:
    unrecorded = call([], [])
    short = call(PROMPT, CALL)
    short.logprobs = short.logprobs[:-1]
    infinite = call(PROMPT, CALL, float("-inf"))
    batch = build(pair(unrecorded, short, infinite))

    assert batch.ledger["it"] == [
        Bucket("masked", "no token ids were recorded"),
        Bucket("masked", "log-probabilities do not match the tokens"),
        Bucket("masked", "log-probabilities do not match the tokens"),
    ]


def test_of_an_episode_that_is_too_long_the_first_calls_are_trained() -> None:
    second = [*PROMPT, *CALL, 8, 8]
    third = [*second, 7, 1, 8]
    calls = call(PROMPT, CALL), call(second, [7, 1]), call(third, [7, 1])
    whole = build(pair(*calls), longest=len(third) + 2)
    cut = build(pair(*calls), longest=len(third) + 1)

    assert whole.ledger["it"] == [TRAINED] * 3
    assert cut.ledger["it"] == [TRAINED, TRAINED, Bucket("masked", TOO_LONG)]
    assert cut.batch.sequences[0].ids == [*second, 7, 1]
    assert cut.batch.trained_tokens == whole.batch.trained_tokens - 2
    none = build(pair(*calls), longest=1)
    assert none.batch.sequences == []
    assert none.ledger["other"] == [Bucket("masked", TOO_LONG)]


def test_a_call_without_trainable_component_is_masked() -> None:
    batch = build(pair(call(PROMPT, CALL)), trainable={"reasoning": True})

    assert batch.ledger["it"] == [Bucket("masked", "no trainable component")]
    assert batch.batch.trained_tokens == 0


def test_every_call_is_in_one_bucket() -> None:
    calls = [call(PROMPT, CALL), call([*PROMPT, *CALL, 8], [7, 1])]
    groups = [
        [rollout("a", 1.0, calls), rollout("b", 0.0, calls), rollout("c", None, calls)],
        [rollout("d", 0.5, calls), rollout("e", 0.5, calls[:1])],
        [rollout("f", 0.5, calls), rollout("g", None, [])],
    ]
    batch = build(groups)

    made = {t.rollout_id: len(t.model_calls) for g in groups for t in g}
    assert {name: len(e) for name, e in batch.ledger.items()} == made
    assert set(batch.ledger["a"] + batch.ledger["b"]) == {TRAINED}
    assert set(batch.ledger["c"]) == {Bucket("dropped", "timed out")}
    assert set(batch.ledger["d"]) == {
        Bucket("masked", "no reward variance in its group")
    }
    assert batch.skipped_groups == 2


def test_a_mistake_is_unlearned_also_where_all_attempts_earn_the_same() -> None:
    broken = ToolCall(name="f", outcome=ToolOutcome.RULE_BROKEN)
    follow = call([*PROMPT, *CALL, 8], [7, 1])
    group = [rollout("it", 0.5, [call(PROMPT, CALL), follow])]
    group[0].steps.insert(1, broken)
    group.append(rollout("other", 0.5, [call(PROMPT, CALL)]))

    batch = build([group], failure_cost=0.5)

    [sequence] = batch.batch.sequences
    told = {t.position: t.advantage for t in sequence.trained}
    assert all(told[position] < 0 for position in range(3, 9))
    assert told[max(told)] == 0
    assert batch.ledger["other"] == [
        Bucket("masked", "no reward variance in its group")
    ]
    assert build([group]).batch.sequences == []


def test_a_missing_reward_is_never_taken_for_zero() -> None:
    groups = [[rollout(n, 1.0, [call(PROMPT, CALL)]) for n in ("a", "b", "c")]]
    batch = build(groups, rewards={"a": [1.0], "b": [0.0], "c": []})
    alone = build(groups, rewards={"a": [1.0], "b": [0.0], "c": [0.0, 0.0]})

    for found in (batch, alone):
        assert found.ledger["c"] == [Bucket("dropped", "no reward for each model call")]
        tokens = [t.advantage for s in found.batch.sequences for t in s.trained]
        assert sorted({round(a, 6) for a in tokens}) == [-1.0, 1.0]


def spoken(role: str, prompt: Sequence[int], response: Sequence[int]) -> ModelCall:
    return call([*prompt], [*response]).model_copy(update={"agent": role})


def advantages(batch: Credited, role: str) -> list[float]:
    """Return the advantage of each sequence of a role, in order."""
    found = [s for s in batch.batch.sequences if s.agent == role]
    return [round(s.trained[0].advantage, 6) for s in found]


def test_roles_that_take_turns_are_merged_each_on_its_own() -> None:
    """Also where their prompts begin alike."""
    plan = [*PROMPT, *CALL, 8]
    calls = [
        spoken("planner", PROMPT, CALL),
        spoken("worker", [*PROMPT, *CALL], [7, 1]),
        spoken("planner", plan, [7, 1]),
        spoken("worker", [*PROMPT, *CALL, 7, 1, 9], CALL),
    ]
    batch = build([[rollout("it", 1.0, calls), rollout("other", 0.0, calls)]])
    assert [(s.agent, s.ids) for s in batch.batch.sequences[:2]] == [
        ("planner", [*plan, 7, 1]),
        ("worker", [*PROMPT, *CALL, 7, 1, 9, *CALL]),
    ]


def test_each_role_has_its_own_baseline_and_scale() -> None:
    """The worker speaks in the two best attempts alone, which are little apart."""
    planner, worker = spoken("planner", PROMPT, CALL), spoken("worker", [9], CALL)
    group = [
        rollout("a", 1.0, [planner, worker]),
        rollout("b", 0.8, [planner, worker]),
        rollout("c", 0.0, [planner]),
        rollout("d", 0.0, [planner]),
    ]
    batch = build([group])
    assert advantages(batch, "worker") == [1.0, -1.0]
    plain = [1.0 - 0.8 / 3, 0.8 - 1.0 / 3, -1.8 / 3, -1.8 / 3]
    scale = (sum(a * a for a in plain) / 4) ** 0.5
    assert advantages(batch, "planner") == [round(a / scale, 6) for a in plain]
    alone = build([[rollout(r.rollout_id, r.reward, r.model_calls[:1]) for r in group]])
    assert advantages(alone, "planner") == advantages(batch, "planner")


def test_calls_of_a_role_that_is_not_trained_are_masked_and_change_nothing() -> None:
    planner, worker = spoken("planner", PROMPT, CALL), spoken("worker", [9], CALL)
    calls = [planner, worker]
    group = [
        rollout("a", 1.0, calls),
        rollout("b", 0.0, calls),
        rollout("c", None, calls),
    ]
    batch = build([group], train_roles=["planner"])
    frozen = Bucket("masked", ROLE_NOT_TRAINED)
    assert batch.ledger["a"] == batch.ledger["b"] == [TRAINED, frozen]
    assert {bucket.verb for bucket in batch.ledger["c"]} == {"dropped"}
    assert advantages(batch, "planner") == advantages(build([group]), "planner")
    assert advantages(batch, "worker") == []
    assert batch.skipped_groups == 0
    nobody = build([group], train_roles=["critic"])
    assert (nobody.batch.sequences, nobody.skipped_groups) == ([], 1)


def test_a_role_without_another_attempt_to_compare_is_masked_and_says_so() -> None:
    planner, worker = spoken("planner", PROMPT, CALL), spoken("worker", [9], CALL)
    group = [rollout("a", 1.0, [planner, worker]), rollout("b", 0.0, [planner])]
    assert build([group]).ledger["a"] == [TRAINED, Bucket("masked", NO_COMPARISON)]
    alike = [rollout("a", 1.0, [planner, worker]), rollout("b", 1.0, [planner, worker])]
    same = Bucket("masked", NO_VARIANCE)
    assert build([alike]).ledger["a"] == [same, same]


def test_sequences_and_breaks_of_the_prefix_are_counted() -> None:
    """A conversation that goes on with other tokens breaks; a new one does not."""
    asked = {"role": "user", "content": "u"}
    said = {"role": "assistant", "content": "a"}
    said_again = {"role": "assistant", "content": " a "}

    def made(prompt: list[int], *messages: dict[str, str]) -> ModelCall:
        return call(prompt, [7, 1]).model_copy(update={"messages": list(messages)})

    first = made(PROMPT, asked)
    kept = made([*PROMPT, 7, 1, 8], asked, said, asked)
    broken = made([*PROMPT, 7, 2, 8], asked, said_again, asked)
    fresh = made([9, 9], {"role": "user", "content": "other"})
    whole = build([[rollout("it", 1.0, [first, kept]), rollout("other", 0.0, [fresh])]])
    cut = build([[rollout("it", 1.0, [first, broken]), rollout("other", 0.0, [fresh])]])

    assert (whole.sequences, whole.breaks) == (1.0, 0)
    assert (cut.sequences, cut.breaks) == (1.5, 1)
