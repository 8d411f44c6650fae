"""What an update costs, and where it points, if its gradient ends at the prompt.

    uv run python benchmarks/prefix_gradient.py --model FOLDER [--scenario coding]
        [--groups 6] [--size 8]

Answers are sampled in groups at the first call of training tasks, and have random
advantages. Both gradients are of the same answers, in turns: the whole one, and one
that does not go through the keys and values of a group's common prompt. Prints their
CPU seconds, the cosine between them, and what a second batch of answers has in common
with the first by either, which says how much of a gradient is noise anyway.
"""

import argparse
import asyncio
import random
import time
from collections.abc import Sequence

import torch
from machine import machine

from agentgym.core.config import TrainingConfig
from agentgym.core.policy import ChatRequest, ChatResult
from agentgym.core.task import Split
from agentgym.engines.base import TrainedToken, TrainingSequence
from agentgym.engines.local.engine import LocalEngine
from agentgym.engines.local.loss import PolicyLoss
from agentgym.scenarios.registry import get_scenario
from agentgym.scenarios.task_lists import make_tasks, tools_of


def main() -> None:
    """Sample, compute both gradients, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", required=True)
    parser.add_argument("--scenario", default="coding")
    parser.add_argument("--groups", type=int, default=6)
    parser.add_argument("--size", type=int, default=8)
    options = parser.parse_args()
    config = TrainingConfig.create(model=options.model, scenario=options.scenario)
    engine = LocalEngine.create(config)
    batches = [
        sample(engine, options.scenario, options.groups, options.size, seed)
        for seed in (0, 1)
    ]
    loss = PolicyLoss(engine._loaded, (0.2, 0.2), 0.0, 1.0)
    names = {True: "the whole gradient", False: "ending at the prompt"}
    found: dict[bool, list[torch.Tensor]] = {True: [], False: []}
    seconds = dict.fromkeys(names, 0.0)
    for batch in batches:
        for whole in names:
            begun = time.process_time()
            found[whole].append(gradient(engine, loss, batch, whole=whole))
            seconds[whole] += time.process_time() - begun
    tokens = sum(len(s.ids) for s in batches[0])
    print(f"{options.model}, {options.scenario}, {options.groups} groups of ", end="")
    print(f"{options.size} answers, {tokens:,} tokens unshared; {machine()}\n")
    print("| gradient | CPU s an update | cosine with the whole | with other answers |")
    print("|---|---:|---:|---:|")
    for whole, name in names.items():
        same = cosine(found[whole][0], found[True][0])
        other = cosine(found[whole][0], found[whole][1])
        each = seconds[whole] / len(batches)
        print(f"| {name} | {each:.1f} | {same:.2f} | {other:.2f} |")


def sample(
    engine: LocalEngine, name: str, groups: int, size: int, seed: int
) -> list[TrainingSequence]:
    """Sample groups of answers to the first request of training tasks."""
    scenario = get_scenario(name)
    tasks = make_tasks(scenario, Split.TRAIN, seed, groups)

    async def answer() -> list[list[ChatResult]]:
        made = []
        for number, task in enumerate(tasks):
            tools = [tool.to_openai() for tool in tools_of(scenario, task)]
            messages = [
                {"role": "system", "content": scenario.system_prompt()},
                {"role": "user", "content": task.instruction},
            ]
            asked = (
                ChatRequest(messages, tools, max_tokens=64, seed=1000 * number + at)
                for at in range(size)
            )
            made.append(await asyncio.gather(*map(engine.policy.chat, asked)))
        return made

    chance = random.Random(seed)
    found = []
    for group, answers in enumerate(asyncio.run(answer())):
        for each in answers:
            advantage = chance.choice((-1.0, 1.0))
            start = len(each.prompt_ids)
            trained = [
                TrainedToken(start + at, logprob, advantage)
                for at, logprob in enumerate(each.logprobs)
            ]
            ids = [*each.prompt_ids, *each.response_ids]
            found.append(TrainingSequence("agent", group, ids, trained))
    return found


def gradient(
    engine: LocalEngine,
    loss: PolicyLoss,
    batch: Sequence[TrainingSequence],
    *,
    whole: bool,
) -> torch.Tensor:
    """Return the gradient of a batch's loss, as one vector."""
    loss.prefix_gradient = whole
    parameters = [p for _, p in engine._loaded.trained_parameters()]
    for parameter in parameters:
        parameter.grad = None
    total = sum(len(sequence.trained) for sequence in batch)
    for forest in loss.plant(batch):
        loss.backward(forest, total)
    kept = [
        torch.zeros_like(p) if p.grad is None else p.grad.clone() for p in parameters
    ]
    return torch.cat([each.flatten().float() for each in kept])


def cosine(one: torch.Tensor, other: torch.Tensor) -> float:
    """Return the cosine of the angle between two vectors."""
    return float(torch.nn.functional.cosine_similarity(one, other, dim=0))


if __name__ == "__main__":
    main()
