"""Agents as rollouts of verl's own trainer."""

import asyncio
import json
import re
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from agentgym.core.config import TrainingConfig
from agentgym.core.ledger import ROLE_NOT_TRAINED
from agentgym.core.policy import ChatRequest, ChatResult
from agentgym.core.task import Split
from agentgym.core.trajectory import ModelCall
from agentgym.engines.local.policy import LocalPolicy
from agentgym.engines.settings import flat
from agentgym.engines.tokens.chat_tokens import ChatTokens
from agentgym.errors import ConfigError, ContextLengthError, EngineError
from agentgym.models.chat_template import ChatTemplate
from agentgym.models.nano import nano_path
from agentgym.plugins.verl.episodes import TokenPolicy, loop_config, sequences_of
from agentgym.rollout.runner import RolloutRequest
from agentgym.rollout.session import RolloutSession
from agentgym.scenarios.registry import get_scenario
from agentgym.train.batch import BatchBuilder
from tests.engines.local.rollouts import TRAINABLE, call, rollout
from tests.plugins.verl.running import ON_CPU, ROOT, on_cpu, run_in_verl
from tests.train.test_batch import CALL, PROMPT, labelled

__all__ = ["on_cpu"]

EXAMPLE = ROOT / "examples" / "verl" / "agent_loop.yaml"
QUESTION = [{"role": "user", "content": "What is it?"}]
SESSION = "rollout/0/agent"


class Servers:
    """verl's servers, which answer with given texts."""

    def __init__(self, *answers: str, response: int = 100, prompt: int = 100) -> None:
        from transformers import AutoTokenizer

        self.tokenizer = AutoTokenizer.from_pretrained(nano_path())
        self.answers, self.asked = list(answers), list[dict[str, Any]]()
        self.stop_reason, self.has_logprobs = "completed", True
        template = ChatTemplate("nano", self.tokenizer)
        ends = frozenset({self.tokenizer.eos_token_id})
        tokens = ChatTokens("nano", self.tokenizer, template, ends, 4096)
        self._limits = {"prompt": prompt, "response": response}
        self.policy = TokenPolicy(tokens, self.generate, None, **self._limits)  # type: ignore[arg-type]
        self.policy.rollouts["rollout"] = {"temperature": 0.5, "top_k": -1}, {}

    async def generate(self, **asked: Any) -> Any:
        self.asked.append(asked)
        ids = self.tokenizer.encode(self.answers.pop(0), add_special_tokens=False)
        logprobs = [-0.5] * len(ids) if self.has_logprobs else None
        return SimpleNamespace(
            token_ids=ids,
            log_probs=logprobs,
            stop_reason=self.stop_reason,
            extra_fields={"global_steps": 3},
        )

    def ask(self, messages: Sequence[Any] = QUESTION, **more: Any) -> ChatResult:
        request = ChatRequest(list(messages), session=SESSION, **more)

        async def asked() -> ChatResult:
            self.policy._loop = asyncio.get_running_loop()
            return await self.policy.chat(request)

        return asyncio.run(asked())


def test_a_call_is_answered_by_verls_servers_token_by_token() -> None:
    servers = Servers("It is blue.", "It is", response=40)
    servers.answers[0] += servers.tokenizer.eos_token
    made = servers.ask(max_tokens=30)
    [asked] = servers.asked
    assert asked["request_id"] == SESSION
    assert asked["prompt_ids"] == made.prompt_ids
    of_verl = {"temperature": 0.5, "top_k": -1}
    assert asked["sampling_params"] == {**of_verl, "logprobs": True, "max_tokens": 30}
    assert (made.content, made.finish_reason) == ("It is blue.", "stop")
    assert made.logprobs == [-0.5] * len(made.response_ids)
    assert made.model_version == 3
    told = [*QUESTION, {"role": "assistant", "content": "It is blue."}, *QUESTION]
    further = servers.ask(told, max_tokens=30)
    before = [*made.prompt_ids, *made.response_ids]
    assert further.prompt_ids[: len(before)] == before
    assert further.finish_reason == "length"


def test_prompts_and_answers_fit_into_verls_rows() -> None:
    servers = Servers("It.", "It.", response=40)
    first = servers.ask(max_tokens=50)
    assert servers.asked[0]["sampling_params"]["max_tokens"] == 40
    further = servers.ask([*QUESTION, *QUESTION], max_tokens=50)
    room = servers.asked[1]["sampling_params"]["max_tokens"]
    assert len(further.prompt_ids) + room == len(first.prompt_ids) + 40
    with pytest.raises(ContextLengthError, match="data.max_response_length is 40"):
        servers.ask(QUESTION * 9)
    with pytest.raises(EngineError, match=r"verl takes 5.*data.max_prompt_length"):
        Servers(prompt=5).ask()


def test_an_answer_ends_at_the_agents_stop_text_and_errors_are_not_answers() -> None:
    made = Servers("one two three four").ask(stop=["two"])
    assert made.finish_reason == "stop"
    assert made.content is not None
    assert re.fullmatch("one two( three)?", made.content)
    assert len(made.logprobs) == len(made.response_ids)
    silent, aborted = Servers("one"), Servers("one")
    silent.has_logprobs, aborted.stop_reason = False, "aborted"
    for servers in (silent, aborted):
        with pytest.raises(EngineError, match="log-probabilities"):
            servers.ask()


def test_calls_that_do_not_continue_each_other_are_sequences_of_their_own() -> None:
    builder = BatchBuilder("rloo", TRAINABLE, labelled, 0.0)
    onward = call([*PROMPT, *CALL, 8], CALL)
    calls = [call(PROMPT, CALL), onward, call([5, 5], CALL)]
    found, left_out = sequences_of(rollout("a", 1.0, calls), builder)
    assert [each.ids[:3] for each in found] == [[5, 5, 2], PROMPT]
    assert [len(each.calls) for each in found] == [1, 2]
    assert left_out == []


def test_a_rollout_without_a_trained_call_keeps_its_first_call() -> None:
    builder = BatchBuilder("rloo", TRAINABLE, labelled, 0.0, train_roles=["b"])
    [only], left_out = sequences_of(rollout("a", 1.0, [call(PROMPT, CALL)]), builder)
    assert (only.ids, only.trained) == ([*PROMPT, *CALL], [])
    assert left_out == [ROLE_NOT_TRAINED]


def test_settings_are_those_of_agents() -> None:
    config = loop_config("nano", {"scenario": "coding", "framework": "native"})
    assert (config.train_tokens, config.max_tokens) == ("all", 1024)
    with pytest.raises(ConfigError, match="learning_rate: an agent loop of verl takes"):
        loop_config("nano", {"scenario": "coding", "learning_rate": 1e-3})


def in_verl(*words: str | Path, **variables: str) -> str:
    """Run Python with verl and this package; return what it printed."""
    if run_in_verl("-c", "import langchain, transfer_queue").returncode:
        pytest.skip("verl's environment has no agentgym[langchain] or TransferQueue")
    ran = run_in_verl(*words, **variables)
    assert ran.returncode == 0, ran.stderr[-5000:]
    return ran.stdout


def written(folder: Path, count: int, split: Split) -> str:
    """Write a data set for verl, as a user does; return the path of the file."""
    data = folder / "tasks.parquet"
    more = ("--split", split.value, "--count", str(count))
    told = in_verl("-m", "agentgym.plugins.verl.agent_loop", EXAMPLE, data, *more)
    assert told == f"Wrote {count} tasks to {data}.\n"
    return str(data)


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_verls_worker_gets_the_rollouts_of_our_runner(tmp_path: Path) -> None:
    count = 6
    given = {
        "model": str(nano_path()),
        "loop": str(EXAMPLE),
        "data": written(tmp_path, count, Split.VALIDATION),
        "settings": {
            "actor_rollout_ref.rollout.name": "hf_cpu",
            "data.max_prompt_length": 1024,
            "data.max_response_length": 1024,
        },
    }
    script = Path(__file__).with_name("agent_loop_user.py")
    made = json.loads(in_verl(script, json.dumps(given)).splitlines()[-1])

    config = TrainingConfig.create(
        scenario="coding",
        framework="langchain",
        eval_temperature=0.0,
        max_tokens=1024,
        rollout_timeout_s=300.0,
    )
    tasks = get_scenario("coding").tasks(Split.VALIDATION, config.seed, count)
    requests = [
        RolloutRequest(str(n), task, False, str(n), 0) for n, task in enumerate(tasks)
    ]
    with (
        closing(LocalPolicy.load(nano_path(), gpu="none")) as policy,
        RolloutSession(config, policy, tmp_path, workers=1) as session,
    ):
        ours = session.run(requests, lambda _: None)

    for n, rollout_of_ours in enumerate(ours):
        calls: list[ModelCall] = rollout_of_ours.model_calls
        last = calls[-1]
        prompt = made["prompts"][n][-len(calls[0].prompt_ids) :]
        assert prompt == calls[0].prompt_ids
        whole = [*last.prompt_ids, *last.response_ids]
        size = len(whole) - len(prompt)
        assert made["responses"][n][:size] == whole[len(prompt) :]
        assert sum(made["attention_mask"][n]) == len(whole)
        sampled = [at for at, kept in enumerate(made["response_mask"][n]) if kept]
        expected = [
            at - len(prompt)
            for each in calls
            for at in range(
                len(each.prompt_ids), len(each.prompt_ids) + len(each.response_ids)
            )
        ]
        assert sampled == expected
        assert [made["rollout_log_probs"][n][at] for at in sampled] == pytest.approx(
            [logprob for each in calls for logprob in each.logprobs], abs=1e-3
        )
        scores = made["rm_scores"][n]
        assert sum(scores) == pytest.approx(rollout_of_ours.reward)
        assert scores[size - 1] == pytest.approx(rollout_of_ours.reward)
        assert made["turns"][n] == len(last.messages) + 1
        assert bool(made["acc"][n]) is rollout_of_ours.success
    assert len({sum(scores) for scores in made["rm_scores"]}) > 1
    assert made["asked"][0]["temperature"] == 0.0

    [only] = made["many"]  # verl's newer trainer takes a list
    assert (
        only["response_mask"] == made["response_mask"][0][: len(only["response_mask"])]
    )
    assert only["extra_fields"]["max_global_steps"] == 7


@pytest.mark.sweep
@pytest.mark.timeout(1800)
def test_verls_main_ppo_trains_with_our_rollouts(
    on_cpu: str, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    settings = {
        **flat(ON_CPU),
        "algorithm.adv_estimator": "grpo",
        "data.train_files": (data := written(tmp_path, 8, Split.TRAIN)),
        "data.val_files": data,
        "data.train_batch_size": 4,
        "data.max_prompt_length": 1024,
        "data.max_response_length": 1024,
        "data.dataloader_num_workers": 0,
        "actor_rollout_ref.model.path": nano_path(),
        "actor_rollout_ref.rollout.n": 4,
        "actor_rollout_ref.rollout.tensor_model_parallel_size": 1,
        "actor_rollout_ref.rollout.log_prob_micro_batch_size_per_gpu": 4,
        "actor_rollout_ref.rollout.agent.num_workers": 1,
        "actor_rollout_ref.rollout.agent.agent_loop_config_path": EXAMPLE,
        "actor_rollout_ref.actor.strategy": "fsdp2",
        "actor_rollout_ref.actor.fsdp_config.strategy": "fsdp2",
        "actor_rollout_ref.actor.ppo_mini_batch_size": 4,
        "actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu": 4,
        "actor_rollout_ref.actor.optim.lr": 1e-4,
        "reward.num_workers": 1,
        "trainer.n_gpus_per_node": 1,
        "trainer.total_training_steps": 2,
        "trainer.val_before_train": False,
        "trainer.test_freq": -1,
        "trainer.logger": "[console]",
        "trainer.resume_mode": "disable",
        "transfer_queue.backend.SimpleStorage.num_data_storage_units": 1,
        "ray_kwargs.ray_init._node_ip_address": "127.0.0.1",
        "ray_kwargs.ray_init.include_dashboard": False,
    }
    words = [f"++{k}={v}".replace("'", "") for k, v in settings.items()]
    told = in_verl(
        *("-m", "verl.trainer.main_ppo", f"hydra.run.dir={tmp_path}"),
        *words,
        RAY_worker_niceness="0",
        RAY_USAGE_STATS_ENABLED="0",
        RAY_ENABLE_UV_RUN_RUNTIME_ENV="0",
        RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER="0",
    )
    steps = [
        {
            name: float(value)
            for name, value in re.findall(r"(\S+):(-?[\d.e+-]+) ", line)
        }
        for line in told.splitlines()
        if "training/global_step:" in line
    ]
    assert [step["training/global_step"] for step in steps] == [1.0, 2.0]
    gaps = [step["training/rollout_probs_diff_max"] for step in steps]
    assert max(gaps) < 1e-4, "answers come from the newest weights"
    assert all(step["actor/grad_norm"] > 0 for step in steps)
    assert all(step["critic/score/max"] > step["critic/score/min"] for step in steps)
    record_property("measured", f"verl's main_ppo: gaps {gaps}")
