"""AgentGymLoop: an agent loop for verl's own trainer; a command that writes its tasks.

    python -m agentgym.plugins.verl.agent_loop agent_loop.yaml train.parquet

verl imports the class by its name, from the file in ``agent_loop_config_path``.
"""

import sys
from collections import Counter
from pathlib import Path
from typing import Any, ClassVar

import pyarrow
import pyarrow.parquet
import typer
from omegaconf import OmegaConf
from transformers import GenerationConfig
from verl.experimental.agent_loop import AgentLoopBase, AgentLoopOutput

from agentgym.core.task import Split, Task
from agentgym.core.trajectory import Trajectory
from agentgym.engines.base import TrainingSequence
from agentgym.engines.local.loading import stop_ids
from agentgym.engines.tokens.chat_tokens import ChatTokens
from agentgym.errors import AgentGymError, UsageError
from agentgym.models.chat_template import ChatTemplate
from agentgym.models.folder import model_source
from agentgym.models.template import template_of
from agentgym.plugins.verl.episodes import (
    Episodes,
    TokenPolicy,
    loop_config,
    sequences_of,
)
from agentgym.plugins.verl.support import served_form
from agentgym.rollout.inspection import probed, require_trainable
from agentgym.rollout.session import check_rollouts
from agentgym.scenarios.task_lists import make_tasks
from agentgym.security.redaction import get_logger

TASK = "agentgym_task"  # the column of verl's data set that has a task, as JSON
OTHER = "verl's earlier trainer takes one sequence, and its own was shorter"
_OF_VERL = (
    *("trainer_config", "server_manager", "tokenizer", "processor"),
    *("dataset_cls", "data_config", "hf_model_type", "tools"),
)
logger = get_logger(__name__)


class AgentGymLoop(AgentLoopBase):
    """An agent loop that runs one episode of an agent for each sample of verl's.

    ``given`` has verl's arguments, and those of :func:`.episodes.loop_config`.
    """

    _opened: ClassVar[dict[tuple[int, str], Episodes]] = {}
    """verl makes a loop for each sample; those of one process share the workers."""

    def __init__(self, **given: Any) -> None:
        super().__init__(**{name: given.pop(name, None) for name in _OF_VERL})
        given.pop("name", None)  # under which verl knows this loop
        settings = OmegaConf.create(given)
        key = id(self.server_manager), OmegaConf.to_yaml(settings, sort_keys=True)
        if key not in self._opened:
            self._opened[key] = self._open(OmegaConf.to_container(settings))
        self._episodes = self._opened[key]

    def _open(self, settings: Any) -> Episodes:
        model, rollout = self.tokenizer.name_or_path, self.rollout_config
        config = loop_config(model, settings)
        served_form(config, "verl")
        used = template_of(model_source(model), config.template)
        if used.chat_template:
            self.tokenizer.chat_template = used.chat_template
        try:
            generation = GenerationConfig.from_pretrained(model)
        except OSError:  # the model has none
            generation = None
        longest = rollout.prompt_length + rollout.response_length
        tokens = ChatTokens(
            model,
            self.tokenizer,
            ChatTemplate(model, self.tokenizer, used),
            stop_ids(model, generation, self.tokenizer),
            min(longest, rollout.max_model_len or longest),
        )
        tokens.check_ends(imitates=False)
        policy = TokenPolicy(
            tokens,
            self.server_manager.generate,
            self.loop,
            prompt=rollout.prompt_length,
            response=rollout.response_length,
        )
        return Episodes(config, policy)

    async def run(
        self, sampling_params: dict[str, Any], **sample: Any
    ) -> AgentLoopOutput | list[AgentLoopOutput]:
        """Run an episode on the sample's task; return its tokens, mask and reward.

        A rollout whose calls do not continue each other's tokens has several sequences.
        verl's trainer V1 takes them all; for the earlier one, which takes one, the
        sequence with most trained tokens is chosen, with a warning.
        """
        if not isinstance(sample.get(TASK), str):
            raise UsageError(
                f"The sample has no column {TASK!r}: write the data set with `python "
                "-m agentgym.plugins.verl.agent_loop`."
            )
        task = Task.model_validate_json(sample[TASK])
        step = max(0, int(sample.get("global_steps") or 0))
        made = await self._episodes.run(
            task, sampling_params, str(sample.get("uid", task.id)), step
        )
        sequences, left_out = sequences_of(made, self._episodes.builder)
        takes_many = "session_id" in sample  # V1 numbers the rollouts of a sample
        if not takes_many:
            left_out += [OTHER] * sum(len(each.calls) for each in sequences[:-1])
            sequences = sequences[-1:]
        if left_out:
            logger.warning(
                "Calls that verl does not train: %s", dict(Counter(left_out))
            )
        rows = [self._output(made, each, len(left_out)) for each in sequences]
        return rows if takes_many else rows[-1]

    def _output(
        self, made: Trajectory, sequence: TrainingSequence, left_out: int
    ) -> AgentLoopOutput:
        # A later sequence may begin with a longer prompt than verl takes.
        start = len(sequence.calls[0].prompt_ids)
        start = min(start, self.rollout_config.prompt_length)
        size = len(sequence.ids) - start
        mask, logprobs = [0] * size, [0.0] * size
        for token in sequence.trained:
            mask[token.position - start] = 1
            logprobs[token.position - start] = token.logprob
        versions = [call.model_version for call in made.model_calls]
        answering_s = sum(call.latency_ms for call in made.model_calls) / 1000
        return AgentLoopOutput(
            prompt_ids=sequence.ids[:start],
            response_ids=sequence.ids[start:],
            response_mask=mask,
            response_logprobs=logprobs,
            reward_score=made.reward,
            num_turns=len(sequence.calls[-1].messages) + 1,
            metrics={
                "generate_sequences": answering_s,
                "tool_calls": max(0.0, made.duration_s - answering_s),
            },
            extra_fields={
                "reward_extra_info": {
                    "acc": float(bool(made.success)),
                    "untrained_calls": left_out,
                },
                "min_global_steps": min(versions),
                "max_global_steps": max(versions),
            },
        )


def write_tasks(
    loop: Path, output: Path, split: Split = Split.TRAIN, count: int = 1024
) -> None:
    """Write the tasks of an agent loop as a data set (Parquet) for verl.

    LOOP is the file of agent_loop_config_path: of its entries, the first one with an
    AgentGymLoop is used. An agent of your own is tried once.
    """
    entries: Any = OmegaConf.to_container(OmegaConf.load(loop))
    ours = [e for e in entries if e.pop("_target_").endswith(".AgentGymLoop")]
    if not ours:
        raise UsageError(f"{loop} has no entry whose _target_ is an AgentGymLoop.")
    entry = ours[0]
    name = entry.pop("name")
    config = loop_config("nano", entry)
    scenario, _ = check_rollouts(config)
    if config.agent.reference is not None:
        require_trainable(config, probed(config))
    rows = [
        {
            "prompt": [{"role": "user", "content": task.instruction}],
            "data_source": f"agentgym/{scenario.name}",
            "agent_name": name,
            "reward_model": {"style": "agentgym", "ground_truth": ""},
            "extra_info": {"index": index},
            TASK: task.model_dump_json(),
        }
        for index, task in enumerate(make_tasks(scenario, split, config.seed, count))
    ]
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), output)
    sys.stdout.write(f"Wrote {len(rows)} tasks to {output}.\n")


if __name__ == "__main__":
    try:
        typer.run(write_tasks)
    except AgentGymError as error:
        sys.exit(f"Error: {error}")
