"""Our trajectories as verl's own data."""

from importlib.util import find_spec

import pytest

from agentgym.core.trajectory import ModelCall, Trajectory
from agentgym.errors import MissingExtraError, UsageError
from agentgym.models.nano import nano_path
from agentgym.train.batch import to_dataproto

HAS_VERL = all(find_spec(name) is not None for name in ("verl", "tensordict"))
CALL = '<tool_call>\n{"name": "read", "arguments": {"path": "a"}}\n</tool_call>'


def rollout(name: str, reward: float) -> Trajectory:
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(nano_path())
    ids = [*tokenizer.encode(CALL, add_special_tokens=False), tokenizer.eos_token_id]
    call = ModelCall(prompt_ids=[5, 6], response_ids=ids, logprobs=[-0.5] * len(ids))
    return Trajectory(
        rollout_id=name, scenario="test", task_id="t", steps=[call], reward=reward
    )


@pytest.mark.skipif(HAS_VERL, reason="verl is installed")
def test_without_verl_it_says_what_to_install() -> None:
    with pytest.raises(MissingExtraError, match=r"agentgym\[verl\]"):
        to_dataproto([], "nano")


@pytest.mark.skipif(not HAS_VERL, reason="verl and tensordict are not installed")
def test_trajectories_become_a_dataproto() -> None:
    made = to_dataproto([rollout("a", 1.0), rollout("b", 0.0)], "nano")
    assert len(made) == 2
    mask = made.batch["response_mask"].bool()
    assert mask.any(1).all()
    assert (made.batch["advantages"][0][mask[0]] > 0).all()
    assert (made.batch["advantages"][1][mask[1]] < 0).all()
    assert (made.batch["old_log_probs"][mask] == -0.5).all()
    assert (made.batch["advantages"][~mask] == 0).all()


@pytest.mark.skipif(not HAS_VERL, reason="verl and tensordict are not installed")
def test_nothing_to_train_is_an_error() -> None:
    with pytest.raises(UsageError, match="None of the model calls can be trained"):
        to_dataproto([rollout("a", 1.0), rollout("b", 1.0)], "nano")
