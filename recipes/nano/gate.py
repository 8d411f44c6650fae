"""Gate a checkpoint on free-running rollouts: a low loss can hide a poor agent.

    python -m recipes.nano.gate --model src/agentgym/models/nano --tasks 96

Plays coding tasks in the training and the validation wording, and a small support
desk, and prints success, exact first calls and valid calls by family and level.
"""

import argparse
import asyncio
import json
import re
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from agentgym.core.task import Split, Task
from agentgym.core.tools import Tool, ToolOutcome, check_call, parse_arguments
from agentgym.core.trajectory import ToolCall, Trajectory
from agentgym.errors import AgentGymError, RuleViolation
from agentgym.packs.coding.scenario import CodingScenario
from agentgym.scenarios.base import Environment, Scenario
from recipes.nano.desk import DeskScenario

CALL = re.compile(r"<tool_call>(.*?)</tool_call>", re.DOTALL)
Sampler = Callable[[list[str]], list[str]]


@dataclass
class Episode:
    """One rollout of the gate."""

    task: Task
    environment: Environment
    tools: dict[str, Tool]
    messages: list[dict[str, Any]]
    trajectory: Trajectory
    first: dict[str, Any] | None = None
    done: bool = False
    outcomes: list[ToolOutcome] = field(default_factory=list)


def sampler(folder: Path, temperature: float, seed: int, most: int = 112) -> Sampler:
    """Return a function that continues prompts by sampling from the model."""
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    tokenizer = AutoTokenizer.from_pretrained(folder, padding_side="left")
    torch.manual_seed(seed)

    def sample(prompts: list[str]) -> list[str]:
        made: list[str] = []
        for start in range(0, len(prompts), 64):
            batch = tokenizer(
                prompts[start : start + 64], padding=True, return_tensors="pt"
            )
            batch.pop("token_type_ids", None)
            with torch.inference_mode():
                out = model.generate(
                    **batch,
                    do_sample=temperature > 0,
                    temperature=temperature or None,
                    top_k=0,
                    max_new_tokens=most,
                )
            fresh = out[:, batch["input_ids"].shape[1] :]
            made += tokenizer.batch_decode(fresh, skip_special_tokens=True)
        return made

    return sample


def parse(text: str) -> list[dict[str, Any]]:
    """Return the tool calls of a response; broken JSON gives a call without a name."""
    calls = []
    for body in CALL.findall(text):
        try:
            call = json.loads(body)
            calls.append({"name": str(call["name"]), "arguments": call["arguments"]})
        except (json.JSONDecodeError, KeyError, TypeError):
            calls.append({"name": "", "arguments": {}})
    return calls


async def play(
    scenario: Scenario, tasks: list[Task], sample: Sampler, template: Any
) -> list[Episode]:
    """Play all tasks side by side until each agent answers or runs out of turns."""
    specs = {spec.name: spec for spec in scenario.tools()}
    offered = [spec.to_openai() for spec in specs.values()]
    episodes = []
    for task in tasks:
        environment = scenario.create_environment(task)
        tools = {tool.spec.name: tool for tool in environment.tools()}
        messages = [
            {"role": "system", "content": scenario.system_prompt()},
            {"role": "user", "content": task.instruction},
        ]
        trajectory = Trajectory(
            rollout_id=task.id, scenario=scenario.name, task_id=task.id
        )
        episodes.append(Episode(task, environment, tools, messages, trajectory))
    for _ in range(scenario.max_turns):
        active = [e for e in episodes if not e.done]
        if not active:
            break
        prompts = [template(e.messages, offered) for e in active]
        for episode, text in zip(active, sample(prompts), strict=True):
            await advance(episode, specs, text)
    return episodes


async def advance(episode: Episode, specs: dict[str, Any], text: str) -> None:
    """Run the calls of one response, or end the episode."""
    calls = parse(text)
    if not calls:
        reply = episode.environment.user_reply(text)
        episode.done = reply is None
        episode.messages += [
            {"role": "assistant", "content": text},
            {"role": "user", "content": reply},
        ]
        return
    functions = [
        {"id": str(i), "type": "function", "function": call}
        for i, call in enumerate(calls)
    ]
    episode.messages.append(
        {"role": "assistant", "content": None, "tool_calls": functions}
    )
    for index, call in enumerate(calls):
        raw = json.dumps(call["arguments"])
        outcome, result = check_call(specs, call["name"], raw)
        arguments = parse_arguments(raw)
        if outcome is ToolOutcome.OK:
            arguments = specs[call["name"]].validate(arguments or {})
            episode.first = episode.first or {"tool": call["name"], "args": arguments}
            try:
                result = await episode.tools[call["name"]](**arguments)
            except RuleViolation as error:
                outcome, result = ToolOutcome.RULE_BROKEN, f"Error: {error}"
            except AgentGymError as error:
                outcome, result = ToolOutcome.RAISED, f"Error: {error}"
        else:
            episode.first = episode.first or {"tool": call["name"], "args": {}}
            result = f"Error: {result}"
        episode.outcomes.append(outcome)
        episode.trajectory.steps.append(
            ToolCall(
                name=call["name"], arguments=arguments, outcome=outcome, result=result
            )
        )
        episode.messages.append(
            {"role": "tool", "tool_call_id": str(index), "content": result}
        )


def exact_first(episode: Episode) -> bool:
    """Return whether the first call is the plan's, with the right arguments."""
    step = episode.task.goal["plan"][0]
    if episode.first is None or episode.first["tool"] != step["tool"]:
        return False
    given = episode.first["args"]
    right = [step["args"], *step["others"]]
    return any(all(given.get(k) == v for k, v in args.items()) for args in right)


def report(scenario: Scenario, title: str, episodes: list[Episode]) -> None:
    """Print the gate's table for one set of episodes."""
    rows: dict[str, list[tuple[float, float, float, float]]] = defaultdict(list)
    for episode in episodes:
        reward = scenario.calculate_reward(
            episode.task, episode.environment, episode.trajectory
        )
        good = sum(o is ToolOutcome.OK for o in episode.outcomes)
        row = (
            float(reward.success),
            float(exact_first(episode)),
            good,
            len(episode.outcomes),
        )
        for key in (
            f"L{episode.task.level} {episode.task.family}",
            f"level {episode.task.level}",
            "levels 1+2" if episode.task.level < 3 else "level 3",
        ):
            rows[key].append(row)
        episode.environment.close()
    print(f"\n{title}: episodes, success, exact first call, reliable calls")
    for key, values in sorted(rows.items()):
        n = len(values)
        success, first, good, calls = (sum(v[i] for v in values) for i in range(4))
        print(
            f"  {key:24} {n:4} {success / n:6.1%} {first / n:6.1%} {good / max(1, calls):6.1%}"
        )


def main() -> None:
    """Print the tables of the coding scenario."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--tasks", type=int, default=96)
    parser.add_argument("--temperature", type=float, nargs="+", default=[1.0])
    parser.add_argument("--splits", nargs="+", default=["train", "validation"])
    parser.add_argument("--levels", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--show", type=int, default=0, help="failures to print")
    options = parser.parse_args()
    torch.set_num_threads(1)
    tokenizer = AutoTokenizer.from_pretrained(options.model)

    def template(messages: list[dict[str, Any]], tools: list[dict[str, Any]]) -> str:
        return str(
            tokenizer.apply_chat_template(
                messages, tools=tools, tokenize=False, add_generation_prompt=True
            )
        )

    scenario = CodingScenario()
    try:
        for temperature in options.temperature:
            sample = sampler(options.model, temperature, seed=0)
            for split in options.splits:
                tasks = scenario.tasks(
                    Split(split), 77, options.tasks, levels=options.levels
                )
                episodes = asyncio.run(play(scenario, tasks, sample, template))
                report(
                    scenario,
                    f"coding, {split} wording, temperature {temperature}",
                    episodes,
                )
                bad = [e for e in episodes if not exact_first(e)]
                for episode in bad[: options.show]:
                    print(
                        episode.task.instruction,
                        "->",
                        episode.first,
                        "not",
                        episode.task.goal["plan"][0],
                    )
            desk = DeskScenario()
            tasks = desk.tasks(Split.TEST, 77, options.tasks)
            episodes = asyncio.run(play(desk, tasks, sample, template))
            report(desk, f"support shop, temperature {temperature}", episodes)
    finally:
        scenario.close()


if __name__ == "__main__":
    main()
