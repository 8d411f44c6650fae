"""Our trajectories as verl's own data; docs/gpu_training.md has the sweep."""

import json
import subprocess
from importlib.util import find_spec
from pathlib import Path

import pytest

from agentgym.core.trajectory import ModelCall, Trajectory
from agentgym.errors import MissingExtraError
from agentgym.models.nano import nano_path
from agentgym.plugins.verl.dataproto import to_dataproto
from tests.plugins.verl.running import run_in_verl

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
    with pytest.raises(MissingExtraError, match=r"pip install .*\[verl\]"):
        to_dataproto([], "nano")


def in_verl(
    tmp_path: Path, trajectories: list[Trajectory]
) -> "subprocess.CompletedProcess[str]":
    """Hand trajectories to a user of verl in its own environment."""
    file = tmp_path / "trajectories.jsonl"
    file.write_text("\n".join(t.model_dump_json() for t in trajectories))
    return run_in_verl(Path(__file__).with_name("verl_user.py"), file)


@pytest.mark.sweep
@pytest.mark.timeout(300)
def test_verls_own_loss_takes_them(tmp_path: Path) -> None:
    right, wrong = rollout("a", 1.0), rollout("b", 0.0)
    done = in_verl(tmp_path, [right, wrong])
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout.splitlines()[-1])
    assert told["rows"] == 2
    trained = told["advantages"]
    assert len(set(trained)) == 2
    assert max(trained) > 0 > min(trained)
    assert told["loss"] == pytest.approx(-sum(trained) / len(trained), abs=1e-6)
    assert set(told["logprobs"]) == {-0.5}
    [call] = right.model_calls
    for tokens in told["tokens"]:
        assert tokens
        assert set(tokens) <= set(call.response_ids)
    length = told["shapes"]["response_mask"]
    assert told["shapes"]["advantages"] == told["shapes"]["responses"] == length
    assert told["shapes"]["input_ids"] == told["shapes"]["position_ids"]
    assert told["meta"]["temperature"] == 1.0
