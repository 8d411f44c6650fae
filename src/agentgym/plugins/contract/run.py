"""Run a contract's test: measure the agent or replay a recording, then judge it."""

from pathlib import Path
from typing import Any

from agentgym.core.trajectory import Trajectory
from agentgym.errors import ConfigError, UsageError
from agentgym.evaluate.evaluation import evaluate
from agentgym.evaluate.events import Observer
from agentgym.plugins.contract.contract import read_contract
from agentgym.plugins.contract.recording import RecordedAnswers
from agentgym.plugins.contract.replay import ReplaySession
from agentgym.plugins.contract.verdict import ContractResult, judge
from agentgym.rollout.absolute_paths import located
from agentgym.scenarios.registry import get_scenario
from agentgym.scenarios.task_lists import tasks_to_measure
from agentgym.train.trained_agent import TrainedAgent
from agentgym.train.trainer import Trainer

_OF_SAVED = ("framework", "agent", "prompts")
"""Settings that a saved agent brings, without which its replay is not the same."""


def run_contract(
    path: Path,
    progress: Observer,
    *,
    record: bool = False,
    replay: bool = False,
    faults: str | None = None,
) -> ContractResult:
    """Test an agent against the contract at ``path``.

    ``record`` writes the model's answers into the contract's recording, ``replay``
    takes the answers of that file instead of asking a model. ``faults`` is the setting
    of that name, instead of the contract's.

    Raises:
        UsageError: The contract cannot be read, or a limit can never be reached.
    """
    contract = read_contract(path)
    settings = contract.config(path.parent).replaced(faults=faults)
    usual = f"{path.stem}.recording.jsonl"
    file = path.parent / (contract.recording or usual)
    if record and replay:
        raise UsageError("--record asks the model, --replay does not: leave out one.")
    if record and settings.private:
        raise ConfigError("--record keeps answers, and private = true forbids that.")
    recording = None
    if replay or (file.exists() and not record):
        recording = RecordedAnswers.load(file)
    if replay and recording is not None:
        settings = settings.replaced(**recording.settings)
    elif contract.agent is not None and contract.is_saved:
        saved = TrainedAgent.load(contract.agent)
        settings = settings.replaced(scenario=saved.same_tasks(settings.scenario))
    is_own = replay or not contract.is_saved
    config = located(settings, own_agent=is_own)
    scenario = get_scenario(config.scenario)
    split, count = contract.measured_split, settings.test_tasks
    tasks = tasks_to_measure(scenario, split, settings.seed, count)
    scenario.close()
    limits = contract.checked_limits([task.id for task in tasks])
    made: list[Trajectory] = []
    asked: dict[str, Any] = {"baselines": False, "keep": made}
    if replay and recording is not None:
        asked["subject"] = recording.subject
        with ReplaySession(config, recording) as session:
            found = evaluate(config, split, progress, session=session, **asked)
    else:
        agent = contract.agent if contract.is_saved else None
        trainer = Trainer(settings, progress=progress)
        found = trainer.evaluate(agent=agent, split=split, **asked)
    if record:
        kept = {name: found.settings[name] for name in _OF_SAVED}
        own = kept if contract.is_saved else {}
        RecordedAnswers.of(found, made, own).save(file)
    name = path.resolve().parent.name if path.stem == "contract" else path.stem
    return judge(name, found, made, limits, recording, replayed=replay)
