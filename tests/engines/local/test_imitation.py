"""Learning from given answers: the policy's own tokens, and it does learn them."""

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from transformers import AutoTokenizer

from agentgym.core.config import TrainingConfig
from agentgym.core.policy import ChatRequest, ChatResult
from agentgym.core.trajectory import RequestedCall
from agentgym.engines.base import (
    TrainedToken,
    TrainingBatch,
    TrainingSequence,
    usual_rates,
)
from agentgym.engines.local import imitation as imitation_module
from agentgym.engines.local.engine import LocalEngine
from agentgym.errors import ContextLengthError
from tests.engines.local.rollouts import TOOLS

CALL = RequestedCall(id="call_1", name="read", arguments='{"path": "b"}')
ASKED: list[dict[str, Any]] = [
    {"role": "system", "content": "look up"},
    {"role": "user", "content": "please read b"},
]


@pytest.fixture(params=[0, 4], ids=["all weights", "adapter"])
def engine(model_folder: Path, request: pytest.FixtureRequest) -> Iterator[LocalEngine]:
    config = TrainingConfig.create(
        model=str(model_folder), gpu="none", lora_rank=request.param, warm_start=True
    )
    made = LocalEngine.create(config)
    yield made
    made.close()


def asked(messages: list[dict[str, Any]], **more: Any) -> ChatRequest:
    return ChatRequest(messages, TOOLS, session="r/0/agent", **more)


def example(*answers: ChatResult) -> TrainingBatch:
    made = TrainingBatch()
    for group, answer in enumerate(answers):
        ids = [*answer.prompt_ids, *answer.response_ids]
        places = range(len(answer.prompt_ids), len(ids))
        tokens = [TrainedToken(place, 0.0, 1.0) for place in places]
        made.sequences.append(TrainingSequence("agent", group, ids, tokens))
    return made


def test_an_answer_is_written_as_the_policy_would_give_it(
    engine: LocalEngine, model_folder: Path
) -> None:
    """Its text parses to the call, and the next prompt goes on token by token."""
    imitation = engine.imitation()

    first = imitation.write(asked(ASKED), "", [CALL])
    told = {"role": "tool", "tool_call_id": CALL.id, "content": "status 1"}
    said = {"role": "assistant", "content": "", "tool_calls": [CALL.to_openai()]}
    last = imitation.write(asked([*ASKED, said, told]), "Done.", ())

    decode = AutoTokenizer.from_pretrained(model_folder).decode
    written = decode(first.response_ids)
    body = json.dumps({"name": "read", "arguments": {"path": "b"}})
    assert written == f"<tool_call>{body}</tool_call><|end|>"
    before = [*first.prompt_ids, *first.response_ids]
    assert last.prompt_ids[: len(before)] == before
    assert decode(last.response_ids) == "Done.<|end|>"
    sampled = asyncio.run(engine.policy.chat(asked(ASKED, max_tokens=1)))
    assert sampled.prompt_ids == first.prompt_ids


@pytest.mark.slow
def test_what_is_imitated_is_learned(engine: LocalEngine) -> None:
    imitation = engine.imitation()
    batch = example(imitation.write(asked(ASKED), "", [CALL]))

    losses = [imitation.learn(batch, 1.0) for _ in range(60)]

    assert losses[0] > 3
    assert losses[-1] < losses[0] - 0.5
    assert engine.step == 0


def test_an_answer_that_does_not_fit_is_refused(engine: LocalEngine) -> None:
    with pytest.raises(ContextLengthError, match="Raise max_tokens"):
        engine.imitation().write(asked(ASKED, max_tokens=3), "", [CALL])


def test_plans_that_are_measured_change_nothing(engine: LocalEngine) -> None:
    imitation = engine.imitation()
    batch = example(imitation.write(asked(ASKED), "", [CALL]))

    measured = [imitation.measure(batch), imitation.measure(batch)]
    learned = [imitation.learn(batch, 0.0), imitation.learn(batch, 0.0)]  # at no rate

    assert measured[0] == measured[1] == pytest.approx(learned[0], rel=1e-5)
    assert learned[0] == learned[1]


@pytest.mark.slow
@pytest.mark.parametrize("rank", [0, 4])
def test_updates_after_it_are_the_same_however_it_was_asked_for(
    model_folder: Path, tmp_path: Path, rank: int
) -> None:
    """A warm start that is accepted at the question comes after the engine was made."""
    given = {"model": str(model_folder), "gpu": "none", "lora_rank": rank}
    weights = []
    for flag in (True, False):
        engine = LocalEngine.create(TrainingConfig.create(warm_start=flag, **given))
        batch = example(engine.imitation().write(asked(ASKED), "", [CALL]))
        engine.update(batch)
        engine.export(tmp_path / str(flag))
        engine.close()
        [file] = (tmp_path / str(flag)).glob("*.safetensors")
        weights.append(file.read_bytes())
    assert weights[0] == weights[1]


@pytest.mark.parametrize(
    ("has_adapter", "is_small", "share"),
    [(False, True, 0.25), (True, True, 1.0), (False, False, 1.0)],
)
def test_only_a_small_model_whose_weights_all_train_is_slower_after_it(
    has_adapter: bool, is_small: bool, share: float
) -> None:
    kind = {"has_adapter": has_adapter, "is_small": is_small}
    warmed, usual = (usual_rates(**kind, is_warmed=flag)[0] for flag in (True, False))
    assert warmed == pytest.approx(share * usual)


def test_a_large_model_is_imitated_in_small_steps(
    engine: LocalEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """AdamW's first step moves a weight by the learning rate, and not by more."""
    monkeypatch.setattr(imitation_module, "SMALL_PARAMETERS", 0)
    imitation = engine.imitation()
    before = {n: p.detach().clone() for n, p in engine._loaded.trained_parameters()}

    imitation.learn(example(imitation.write(asked(ASKED), "", [CALL])), 1.0)

    steps = [
        float((p.detach() - before[n]).abs().max())
        for n, p in engine._loaded.trained_parameters()
    ]
    rate = 1e-5 if engine._loaded.adapter is None else 2e-4
    assert 0.5 * rate < max(steps) < 1.1 * rate
