"""Turn the result of a remote run into a local result or an exception."""

import json
from pathlib import Path
from typing import Any

from agentgym import errors
from agentgym.core.config import TrainingConfig
from agentgym.errors import AgentGymError, ComputeError, TrainingHalted
from agentgym.plugins.cloud.elsewhere.upload import Upload
from agentgym.train.export import keep
from agentgym.train.result import TrainingResult
from agentgym.train.run_folder import RunFolder
from agentgym.train.trained_agent import TrainedAgent

_OUT_OF_MEMORY = -9


def arrived(text: str, run: RunFolder, config: TrainingConfig) -> TrainingResult:
    """Save the trained agent of a finished run; return its result with local paths."""
    settings = config.model_dump(mode="json")
    agent = TrainedAgent.load((run.path / "agent").resolve())
    where = {"base_model": config.model, "config": settings}
    agent.provenance = agent.provenance.model_copy(
        update={**where, "run": str(run.path.resolve()), "folder": str(Path.cwd())}
    )
    agent.write_card()
    found = json.loads(text)
    found["config"] = settings
    found["artifacts"] = {"run": str(run.path), "agent": str(run.path / "agent")}
    found["saved"] = keep(agent, config.agent_name).model_dump(mode="json")
    result = TrainingResult.model_validate(found)
    result.write()
    return result


def ended_with(
    outcome: dict[str, Any], run: RunFolder, where: str, upload: Upload, folder: str
) -> AgentGymError:
    """Return the exception for a remote run that did not finish."""
    log = f"Its log is in {run.path / 'elsewhere.log'}."
    match outcome["kind"]:
        case "interrupted":
            return run.interrupted()
        case "limit":
            return TrainingHalted(str(run.path), f"on {where}, {outcome['message']}")
        case "lost":
            return ComputeError(
                f"The training on {where} is gone without a message: the machine "
                f"was restarted, or the process was killed. {log}"
            )
        case "killed":
            memory = ", as it is when memory runs out"
            why = memory if outcome["code"] == _OUT_OF_MEMORY else ""
            return ComputeError(
                f"The training on {where} was killed (exit code {outcome['code']}"
                f"{why}). {log}"
            )
    message = upload.with_local_paths(outcome["message"], folder)
    kind = getattr(errors, outcome["type"], None)
    if not (isinstance(kind, type) and issubclass(kind, AgentGymError)):
        return ComputeError(
            f"The training on {where} failed: {outcome['type']}: {message}. {log}"
        )
    error = kind.__new__(kind)
    error.args = (message,)
    if isinstance(error, errors.TrainingFailedError):
        error.resumable = outcome["resumable"]
    return error
