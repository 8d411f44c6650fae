"""TRL's GRPOTrainer on the same policy, scenario and tasks, as its users run it.

The policy reads the prompt that ours reads, token by token, and its tool calls are
parsed by a response template. Started by training.py:
``python trl_grpo.py --steps 1 --tasks 16 FIGURES.json``.
"""

import argparse
import asyncio
import json
import sys
import tempfile
from pathlib import Path

from datasets import Dataset
from rollouts import measured
from transformers import AutoTokenizer, TrainerCallback
from trl import GRPOConfig, GRPOTrainer

from agentgym.core.config import TrainingConfig
from agentgym.core.task import Split, Task
from agentgym.core.tools import ToolSpec
from agentgym.core.trajectory import Trajectory
from agentgym.integrations.episode import Episode
from agentgym.models.nano import nano_path
from agentgym.scenarios.registry import get_scenario

SCENARIO = get_scenario("coding")
MAX_COMPLETION = 768  # of an episode, tool results included: what the context leaves
LEARNING_RATE = 4e-4  # our default for this policy

RESPONSE_TEMPLATE = {
    "defaults": {"role": "assistant"},
    "start_anchor": "<|assistant|>",
    "fields": {
        "tool_calls": {
            "open": "<tool_call>",
            "close_pattern": r"</tool_call>\s*",
            "repeats": True,
            "content": "json",
            "transform": {"type": "function", "function": "{content}"},
        },
        "content": {"close_pattern": r"<\|end\|>\s*", "content": "text"},
    },
}
"""How the policy writes its answers."""


class Totals:
    """What the scored episodes amount to."""

    episodes = 0
    model_calls = 0
    tool_calls = 0
    reward = 0.0


class CodingTools:
    """The scenario's tools as TRL wants them: methods of a resettable object."""

    def reset(self, task: str, **_: object) -> None:
        """Start the episode of a task, given as JSON."""
        self._task = Task.model_validate_json(task)
        self._environment = SCENARIO.create_environment(self._task)
        tools = {tool.spec.name: tool for tool in self._environment.tools()}
        self._episode = Episode(self._task, mode="train", tools=tools)

    def score(self) -> float:
        """Return the scenario's reward."""
        trajectory = Trajectory(
            rollout_id="trl",
            scenario=SCENARIO.name,
            task_id=self._task.id,
            steps=list(self._episode.tool_calls),
        )
        reward = SCENARIO.calculate_reward(self._task, self._environment, trajectory)
        self._environment.close()
        Totals.tool_calls += len(self._episode.tool_calls)
        Totals.reward += reward.value
        return reward.value

    def _call(self, name: str, **arguments: object) -> str:
        return asyncio.run(self._episode.use_tool(name, arguments))

    def list_files(self, path: str = ".") -> str:
        """List the files in a folder.

        Args:
            path: Folder.
        """
        return self._call("list_files", path=path)

    def read_file(self, path: str) -> str:
        """Read a file.

        Args:
            path: File.
        """
        return self._call("read_file", path=path)

    def search_code(self, query: str) -> str:
        """Search all files for a text.

        Args:
            query: Text.
        """
        return self._call("search_code", query=query)

    def edit_file(self, path: str, old: str, new: str) -> str:
        """Replace a text in a file.

        Args:
            path: File.
            old: Text to replace.
            new: Text to put there.
        """
        return self._call("edit_file", path=path, old=old, new=new)

    def run_tests(self, path: str = "tests") -> str:
        """Run tests.

        Args:
            path: Test file or folder.
        """
        return self._call("run_tests", path=path)

    def run_script(self, path: str, args: str = "") -> str:
        """Run a script.

        Args:
            path: Script.
            args: Arguments.
        """
        return self._call("run_script", path=path, args=args)

    def lint(self, path: str) -> str:
        """Report warnings of a file.

        Args:
            path: File.
        """
        return self._call("lint", path=path)

    def format_file(self, path: str) -> str:
        """Format a file.

        Args:
            path: File.
        """
        return self._call("format_file", path=path)


def reward(
    environments: list[CodingTools], completions: list[list[dict]], **_: object
) -> list[float]:
    """Score each finished episode."""
    Totals.episodes += len(environments)
    Totals.model_calls += sum(
        message["role"] == "assistant" for said in completions for message in said
    )
    return [environment.score() for environment in environments]


class Stopwatch(TrainerCallback):
    """Measures the training steps, without loading and start-up."""

    def __init__(self) -> None:
        """Wait for the first step."""
        self.used: list[float] = []
        self._meter = measured()

    def on_step_begin(self, args, state, control, **_):
        """Start at the first step."""
        if state.global_step == 0:
            self.used = self._meter.__enter__()

    def on_train_end(self, args, state, control, **_):
        """Stop after the last."""
        self._meter.__exit__(None, None, None)


def prompt_of(task: Task, tools: list[ToolSpec], template: AutoTokenizer) -> list[dict]:
    """Return the messages of a task, the system's with the tools as ours shows them.

    TRL would describe the tools from the methods' docstrings, in another order.
    """
    system = {"role": "system", "content": SCENARIO.system_prompt()}
    offered = [tool.to_openai() for tool in tools]
    text = template.apply_chat_template([system], tools=offered, tokenize=False)
    content = text.removeprefix("<|system|>").removesuffix("<|end|>")
    return [
        {"role": "system", "content": content},
        {"role": "user", "content": task.instruction},
    ]


def main() -> None:
    """Train some steps and write the figures; exit 1 if no episode used a tool."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=1)
    parser.add_argument("--tasks", type=int, default=16, help="per step")
    parser.add_argument("figures", type=Path)
    options = parser.parse_args()
    config = TrainingConfig.create(tasks_per_step=options.tasks)
    tokenizer = AutoTokenizer.from_pretrained(nano_path())
    rows = [
        {
            "prompt": prompt_of(task, SCENARIO.tools(), tokenizer),
            "task": task.model_dump_json(),
        }
        for task in SCENARIO.tasks(Split.TRAIN, 0, options.tasks * options.steps)
    ]
    tokenizer.chat_template = "{%- set tools = none -%}" + tokenizer.chat_template
    tokenizer.response_template = RESPONSE_TEMPLATE
    watch = Stopwatch()
    batch = config.tasks_per_step * config.group_size
    with tempfile.TemporaryDirectory() as folder:
        trainer = GRPOTrainer(
            model=str(nano_path()),
            processing_class=tokenizer,
            reward_funcs=reward,
            environment_factory=CodingTools,
            train_dataset=Dataset.from_list(rows),
            callbacks=[watch],
            args=GRPOConfig(
                output_dir=folder,
                per_device_train_batch_size=batch,
                num_generations=config.group_size,
                max_completion_length=MAX_COMPLETION,
                generation_kwargs={"max_new_tokens": config.answer_tokens},
                max_tool_calling_iterations=SCENARIO.max_turns - 1,
                temperature=config.temperature,
                learning_rate=LEARNING_RATE,
                max_steps=options.steps,
                beta=0.0,
                gradient_checkpointing=False,
                use_cpu=True,
                bf16=False,
                report_to="none",
                logging_steps=1,
                save_strategy="no",
                shuffle_dataset=False,
            ),
        )
        trainer.train()
    SCENARIO.close()
    if not Totals.tool_calls:
        sys.exit("TRL's episodes made no tool calls: its row would compare nothing.")
    figures = {
        "episodes": Totals.episodes,
        "model_calls": Totals.model_calls,
        "tool_calls": Totals.tool_calls,
        "reward": Totals.reward / Totals.episodes,
        "wall_seconds": watch.used[0],
        "cpu_seconds": watch.used[1],
    }
    options.figures.write_text(json.dumps(figures))


if __name__ == "__main__":
    main()
