"""Made-up rollouts with token ids, for tests of the update."""

import asyncio
import random
from collections.abc import Mapping, Sequence

from agentgym.core.policy import ChatRequest, ChatResult, Policy
from agentgym.core.trajectory import ModelCall, Reason, RolloutStatus, Trajectory
from agentgym.engines.base import (
    Engine,
    TrainedToken,
    TrainingBatch,
    TrainingSequence,
)
from agentgym.engines.credit import Algorithm
from agentgym.train.batch import BatchBuilder, Credited

TRAINABLE = {"tool_selection": True, "parameter_selection": True}
TOOLS = [
    {
        "type": "function",
        "function": {
            "name": name,
            "description": "",
            "parameters": {"type": "object", "properties": {"path": {}}},
        },
    }
    for name in ("read", "find", "open")
]


def call(
    prompt: Sequence[int], response: Sequence[int], logprob: float = -2.0
) -> ModelCall:
    return ModelCall(
        prompt_ids=list(prompt),
        response_ids=list(response),
        logprobs=[logprob] * len(response),
    )


def rollout(name: str, reward: float | None, calls: Sequence[ModelCall]) -> Trajectory:
    return Trajectory(
        rollout_id=name,
        scenario="test",
        task_id="t",
        steps=list(calls),
        reward=reward,
        status=RolloutStatus.DROPPED if reward is None else RolloutStatus.SUCCEEDED,
        reason=Reason(kind="timed out") if reward is None else None,
    )


def broadcast(trajectory: Trajectory) -> list[float]:
    return [trajectory.reward or 0.0] * len(trajectory.model_calls)


def credit(
    engine: Engine,
    groups: Sequence[Sequence[Trajectory]],
    trainable: Mapping[str, bool],
    algorithm: Algorithm = "rloo",
) -> Credited:
    """Make rollouts into a batch, as training does, but for what failures cost."""
    builder = BatchBuilder(algorithm, trainable, engine.label, 0.0)
    return builder.build(groups, broadcast)


def chat(policy: Policy, requests: Sequence[ChatRequest]) -> list[ChatResult]:
    """Let a policy answer all requests at once."""

    async def all_of_them() -> list[ChatResult]:
        return await asyncio.gather(*map(policy.chat, requests))

    return asyncio.run(all_of_them())


def by_parity(
    results: Sequence[ChatResult], requests: Sequence[ChatRequest], likelier: str = ""
) -> TrainingBatch:
    """Make tokens of odd ids likelier for one agent, and less likely for others."""
    made = []
    for number, (request, result) in enumerate(zip(requests, results, strict=True)):
        sign = 1.0 if request.agent == likelier else -1.0
        start = len(result.prompt_ids)
        trained = [
            TrainedToken(start + at, logprob, sign if token % 2 else -sign)
            for at, (token, logprob) in enumerate(
                zip(result.response_ids, result.logprobs, strict=True)
            )
        ]
        ids = [*result.prompt_ids, *result.response_ids]
        made.append(TrainingSequence(request.agent, number, ids, trained))
    return TrainingBatch(made)


def random_groups(
    seed: int, vocabulary: int, groups: int = 3, size: int = 4
) -> list[list[Trajectory]]:
    """Return groups whose prompts share a head and whose turns continue each other."""
    rng = random.Random(seed)

    def ids(count: int) -> list[int]:
        return [rng.randrange(10, vocabulary) for _ in range(count)]

    head = ids(40)
    made = []
    for g in range(groups):
        task, shared = ids(6), ids(5)
        group = []
        for r in range(size):
            prompt = [*head, *task]
            calls = []
            for turn in range(rng.randint(1, 3)):
                again = r % 2 == 0 and turn == 0
                response = [*(shared if again else ids(5)), 1]
                logprob = -6.0 if again and g else rng.uniform(-7, -4)
                calls.append(call(prompt, response, logprob))
                prompt = [*prompt, *response, *ids(4)]
            group.append(rollout(f"g{g}-r{r}", rng.uniform(-1, 1), calls))
        made.append(group)
    return made
