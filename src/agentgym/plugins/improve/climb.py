"""Check the settings, then try remedies until the goal is met: :func:`improve`."""

import fcntl

from agentgym.core.config import TrainingConfig
from agentgym.errors import RunFolderError, UsageError
from agentgym.evaluate import events
from agentgym.plugins.improve.bill import Bill, folder_of
from agentgym.plugins.improve.ladder import Climb, try_rungs
from agentgym.plugins.improve.remedies import rungs
from agentgym.plugins.improve.terms import Terms, check_terms, own_model
from agentgym.rollout.absolute_paths import located
from agentgym.rollout.gateway.metered import Purse
from agentgym.rollout.inspection import probed, require_trainable
from agentgym.rollout.session import check_rollouts
from agentgym.security.files import make_private_folder


def improve(
    config: TrainingConfig,
    terms: Terms,
    *,
    own: bool = False,
    progress: events.Observer = events.silent,
) -> Bill:
    """Improve an agent until it meets a goal; return the results and costs.

    Tries several remedies (rungs), the cheapest first; see
    :mod:`agentgym.plugins.improve`.

    ::

        terms = Terms(read_goal("pass_1=0.9"), max_cost=5)
        config = TrainingConfig.create(agent="app:graph", scenario="tasks.jsonl")
        print(improve(config, terms).ended)

    Args:
        config: The agent, its tasks, and the model to begin with.
        terms: The goal, the cost limit, and the model that writes better prompts.
        own: Whether to begin with the model that the agent's own code names, if it is a
            provider's and the provider's key is set.
        progress: Observer that receives events, e.g. the start of a remedy.

    Raises:
        UsageError: A setting cannot work; nothing was started or paid.
        RunFolderError: Another process uses the same folder, or the folder's bill
            cannot be read.
        Interrupted: Ctrl-C or SIGTERM. The results of finished rungs are kept; the same
            call continues after them.
    """
    config = located(config)
    scenario, _ = check_rollouts(config)
    if config.agent.reference is None:
        raise UsageError(
            "Whose agent? Name it with --agent module:name, or use `agentgym train` "
            "for a scenario's own."
        )
    if config.private:
        raise UsageError(
            "private = true keeps texts out of files, and `improve` writes the prompts "
            "that it tries and the rollouts that it learns from into its folder. Use "
            "`agentgym train` or `agentgym eval`, which keep none."
        )
    check_terms(terms, config, scenario)
    report = probed(config)
    if own and (model := own_model(report)) is not None:
        progress(events.Message(f"The agent has its own model, {model}."))
        config = config.replaced(model=model)
        check_terms(terms, config, scenario)
    require_trainable(config, report)
    goal = f"{terms.goal.metric}={terms.goal.least:g}"
    folder = folder_of(config)
    make_private_folder(folder)
    with open(folder / ".lock", "a", encoding="utf-8") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise RunFolderError(
                f"Another process works in {folder}. Wait for it, or end it."
            ) from None
        bill = Bill.open(folder, goal, terms.max_cost, config.model)
        purse = Purse(terms.max_cost, bill.dollars)
        return try_rungs(rungs(), Climb(config, terms, purse, bill, progress))
