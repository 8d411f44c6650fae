"""Chooses the weights that a run ends with: the newest, the best, or a warm start's."""

from agentgym.engines.base import Engine
from agentgym.evaluate.compare import is_beyond_chance
from agentgym.train.measuring import Measuring
from agentgym.train.run_folder import RunFolder, RunState


def load_best_weights(
    run: RunFolder,
    state: RunState,
    engine: Engine,
    measuring: Measuring,
    *,
    goal_reached: bool,
) -> int:
    """Load the weights that the agent gets, and return their step.

    Where the goal was reached the newest are taken: more tasks have confirmed them.
    Else those of the best validation are. Of many validations the best is better than
    its weights are; so where a warm start came first, both are measured once more on
    tasks that no validation used, and the warm start's stay unless the best ones solve
    more of these, beyond chance.
    """
    best, step = run.best_checkpoint(state), state.watch.best_step
    first = run.first_checkpoint(state)
    if goal_reached or best is None:
        return state.step
    if first is not None and best != first:
        engine.load_checkpoint(best)
        found = measuring.fresh("best")
        engine.load_checkpoint(first)
        before = measuring.fresh("first")
        if not (found.pass_1 > before.pass_1 and is_beyond_chance(before, found)):
            return 0
    if step != state.step or first is not None:
        engine.load_checkpoint(best)
    return step
