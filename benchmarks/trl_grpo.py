"""TRL's GRPOTrainer on the same policy, scenario and tasks, as its users run it.

Started by training.py: ``python trl_grpo.py STEPS FIGURES.json``.
"""

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
from agentgym.core.trajectory import Trajectory
from agentgym.models.nano import nano_path
from agentgym.rollout.episode import Episode
from agentgym.scenarios.registry import get_scenario

SCENARIO = get_scenario("coding")
CALLS = [0]


_OLDER_SCHEMA = {
    "x-regex": (
        r"^(?P<content>(?:(?!<tool_call>)[\s\S])*?)"
        r"(?P<tool_calls>(?:<tool_call>[\s\S]+?</tool_call>)+)?(?:<\|end\|>|$)"
    ),
    "type": "object",
    "properties": {
        "role": {"const": "assistant"},
        "content": {"type": "string"},
        "tool_calls": {
            "type": "array",
            "x-regex-iterator": r"<tool_call>(.+?)</tool_call>",
            "items": {
                "x-parser": "json",
                "x-parser-args": {"transform": "{type: 'function', function: @}"},
                "type": "object",
                "properties": {
                    "type": {"const": "function"},
                    "function": {
                        "type": "object",
                        "properties": {
                            "name": {"type": "string"},
                            "arguments": {
                                "type": "object",
                                "additionalProperties": {},
                            },
                        },
                    },
                },
            },
        },
    },
}
"""How TRL before its response templates reads the policy's tool calls."""


class CodingTools:
    """The scenario's tools as TRL wants them: methods of a resettable object."""

    def reset(self, task: str, **_: object) -> None:
        """Start the episode of a task, given as JSON."""
        self._task = Task.model_validate_json(task)
        self._environment = SCENARIO.create_environment(self._task)
        tools = {tool.spec.name: tool for tool in self._environment.tools()}
        self._episode = Episode("trl", "0", "train", tools)

    def score(self) -> float:
        """Return the scenario's reward."""
        trajectory = Trajectory(
            rollout_id="trl",
            scenario=SCENARIO.name,
            task_id=self._task.id,
            steps=list(self._episode.calls),
        )
        CALLS[0] += len(self._episode.calls) + 1
        reward = SCENARIO.calculate_reward(self._task, self._environment, trajectory)
        return reward.value

    def _call(self, name: str, **arguments: object) -> str:
        return asyncio.run(self._episode.call_tool(name, arguments))

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


def reward(environments: list[CodingTools], **_: object) -> list[float]:
    """Score each finished episode."""
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


def main() -> None:
    """Train some steps and write the figures."""
    steps, out = int(sys.argv[1]), Path(sys.argv[2])
    config = TrainingConfig.create()
    tasks = SCENARIO.tasks(Split.TRAIN, 0, config.tasks_per_step * steps)
    system = {"role": "system", "content": SCENARIO.system_prompt()}
    rows = [
        {
            "prompt": [system, {"role": "user", "content": task.instruction}],
            "task": task.model_dump_json(),
        }
        for task in tasks
    ]
    tokenizer = AutoTokenizer.from_pretrained(nano_path())
    tokenizer.response_template = {
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
    tokenizer.response_schema = _OLDER_SCHEMA
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
                max_completion_length=768,
                max_tool_calling_iterations=SCENARIO.max_turns,
                temperature=config.temperature,
                learning_rate=5e-4,
                max_steps=steps,
                beta=0.0,
                use_cpu=True,
                bf16=False,
                report_to="none",
                logging_steps=1,
                save_strategy="no",
                shuffle_dataset=False,
            ),
        )
        trainer.train()
    figures = {
        "episodes": batch * steps,
        "calls": CALLS[0],
        "wall_seconds": watch.used[0],
        "cpu_seconds": watch.used[1],
    }
    out.write_text(json.dumps(figures))
    SCENARIO.close()


if __name__ == "__main__":
    main()
