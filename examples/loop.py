"""On-policy training of an agent's tool calls, in one file: the loop that `train` runs.

python examples/loop.py [STEPS] [SCENARIO] [FRAMEWORK]

Everything that a run needs apart from the algorithm is left out: validation, resuming,
time limits, a warm start, reports. `agentgym train` has them.
"""

import sys
from collections.abc import Sequence
from itertools import batched
from pathlib import Path
from tempfile import TemporaryDirectory

from agentgym import Scenario, Split, Task, TrainingConfig, Trajectory
from agentgym.core.components import is_trained
from agentgym.core.trajectory import RolloutStatus
from agentgym.engines.base import (
    Engine,
    TrainedToken,
    TrainingBatch,
    TrainingSequence,
)
from agentgym.engines.registry import create_engine, paced_settings
from agentgym.evaluate.intervals import (
    Estimate,
    estimate_difference,
    estimate_ratio,
    points,
)
from agentgym.rollout.runner import RolloutRequest
from agentgym.rollout.session import RolloutSession, worker_count
from agentgym.scenarios.registry import get_scenario

SOLVED = RolloutStatus.SUCCEEDED
TASKS = 8
"""Tasks of a step."""
ATTEMPTS = 8
"""Attempts at each task: a group, whose rewards are compared."""
HELD_OUT = 48
"""Tasks of the test split, which are attempted twice before and after training."""


def main(
    steps: int = 12, scenario: str = "coding", framework: str = "langchain"
) -> None:
    """Train the shipped policy, and print how held-out tasks go before and after."""
    config = paced_settings(
        TrainingConfig(scenario=scenario, framework=framework, engine="local")
    )
    tasks = get_scenario(scenario)
    engine = create_engine(config)
    with (
        TemporaryDirectory() as folder,
        RolloutSession(
            config, engine.policy, Path(folder), worker_count(config)
        ) as session,
    ):
        test = tasks.tasks(Split.TEST, config.seed, HELD_OUT)
        before = solved(attempts(session, test, 2, step=0, name="before"))
        print(f"held-out tasks solved before training: {shown(before)}")
        for step in range(1, steps + 1):
            # 1. Sample: the newest weights attempt each task several times.
            chosen = tasks.tasks(Split.TRAIN, config.seed + step, TASKS)
            groups = attempts(session, chosen, ATTEMPTS, step=step, train=True)
            # 2. Compare the attempts at one task with each other.
            batch = TrainingBatch(spent=(step - 1) / steps)
            for number, group in enumerate(groups):
                for rollout, advantage in zip(group, advantages(group), strict=True):
                    if advantage:  # all attempts were equal: nothing to learn from
                        batch.sequences += sequences(
                            rollout, number, advantage, engine, tasks
                        )
            # 3. Make the calls of better attempts more probable, those of worse ones
            # less: a clipped policy gradient over the trained tokens.
            update = engine.update(batch)
            rewards = [rollout.reward or 0.0 for group in groups for rollout in group]
            print(
                f"step {step}: mean reward {sum(rewards) / len(rewards):.2f}, "
                f"{batch.trained_tokens} trained tokens, KL {update.kl:.4f}"
            )
        after = solved(attempts(session, test, 2, step=steps + 1, name="after"))
        print(f"held-out tasks solved after training: {shown(after)}")
        gain = estimate_difference(before, after)
        print(f"difference: {points(gain)}")
    engine.close()


def attempts(
    session: RolloutSession,
    tasks: Sequence[Task],
    size: int,
    *,
    step: int,
    name: str = "train",
    train: bool = False,
) -> list[tuple[Trajectory, ...]]:
    """Let the agent attempt each task ``size`` times; return a group for each task.

    The agent runs in worker processes, as its author wrote it. Its model's calls are
    answered by the policy, and are recorded with their token ids.
    """
    requests = [
        RolloutRequest(
            f"{name}-{step}-{at}-{n}", task, train, f"{name}-{step}-{at}", step
        )
        for at, task in enumerate(tasks)
        for n in range(size)
    ]
    return [*batched(session.run(requests, lambda rollout: None), size)]


def advantages(group: Sequence[Trajectory]) -> list[float]:
    """Return each attempt's reward minus the mean reward of the others.

    This is RLOO (Ahmadian et al. 2024, arXiv:2402.14740): attempts at the same task are
    each other's baseline, so that no value model is needed.
    """
    rewards = [rollout.reward or 0.0 for rollout in group]
    others = [(sum(rewards) - r) / (len(rewards) - 1) for r in rewards]
    return [r - mean for r, mean in zip(rewards, others, strict=True)]


def sequences(
    rollout: Trajectory, group: int, advantage: float, engine: Engine, tasks: Scenario
) -> list[TrainingSequence]:
    """Return the training data of a rollout: a sequence for each call of the model.

    Only the tokens that choose a tool and its arguments are trained, not the results of
    tools or the user's words: these were not written by the policy.
    """
    trainable = tasks.define_trainable_components()
    made = []
    for call in rollout.model_calls:
        labels = engine.label(call) or []
        trained = [
            TrainedToken(len(call.prompt_ids) + at, call.logprobs[at], advantage)
            for at, components in enumerate(labels)
            if is_trained(components, trainable)
        ]
        if trained:
            ids = [*call.prompt_ids, *call.response_ids]
            made.append(TrainingSequence(call.agent, group, ids, trained, [call]))
    return made


def solved(groups: Sequence[Sequence[Trajectory]]) -> list[tuple[float, float]]:
    """Return for each task the number of solved attempts, and of all attempts."""
    return [(sum(r.status is SOLVED for r in group), len(group)) for group in groups]


def shown(pairs: Sequence[tuple[float, float]]) -> str:
    """Return a share of solved attempts, with its 95 % interval over tasks."""
    found: Estimate = estimate_ratio(pairs)
    return f"{found.value:.0%} [{found.low:.0%}, {found.high:.0%}]"


if __name__ == "__main__":
    given = sys.argv[1:]
    main(int(given[0]) if given else 12, *given[1:3])
