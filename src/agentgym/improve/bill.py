"""Bill: the results and the cost of each rung of a ladder; kept on disk."""

import hashlib
import json
from pathlib import Path
from typing import Literal, Self

from pydantic import BaseModel, Field

from agentgym.core.config import TrainingConfig
from agentgym.core.files import parse_json, write_json
from agentgym.core.task import TaskSource
from agentgym.errors import RunFolderError
from agentgym.evaluate.metrics import Metrics
from agentgym.scenarios.packs import is_tasks_file
from agentgym.security.private import make_private_folder

BILL_FILE = "bill.json"
PROMPTS_FILE = "prompts.json"
_NOT_TASKS = {"yes", "max_cost", "output", "name", "episodes", "time", "gpu"}
_NOT_TASKS |= {"workers", "concurrency"}

_KEPT_FIELDS = ("rungs", "run", "agent")

Status = Literal["met", "missed", "skipped", "ended", "quoted"]


class RungResult(BaseModel, extra="forbid"):
    """The result of one rung.

    Attributes:
        name: Of the rung.
        status: ``met`` or ``missed`` the goal on held-out tasks; ``skipped`` before
            anything was done; ``ended`` before it could be measured; ``quoted`` alone.
        words: The work done, or why there was none, in sentences.
        before: The held-out tasks before the rung; None before the first one.
        after: The same tasks after it; None if they were not measured.
        dollars: Spent.
        prompt_tokens: Of models that servers answer for, ``response_tokens`` of the
            answers. A policy on this machine is not among them.
        seconds: Wall time.
    """

    name: str
    status: Status
    words: str = ""
    before: Metrics | None = None
    after: Metrics | None = None
    dollars: float = 0.0
    prompt_tokens: int = 0
    response_tokens: int = 0
    seconds: float = 0.0


class Bill(BaseModel, extra="forbid"):
    """A ladder so far.

    Attributes:
        goal: As the user wrote it: ``pass_1=0.9``.
        max_cost: Most US dollars in all.
        model: That rung 1 measured.
        rungs: Finished ones, in order.
        ended: Why the ladder ended, in sentences; empty while it goes on.
        run: Folder of the training run; empty before there is one.
        agent: The saved agent, ``desk@2``; empty without one.
        folder: Where the bill and the prompts are.
    """

    goal: str
    max_cost: float
    model: str
    rungs: list[RungResult] = Field(default_factory=list)
    ended: str = ""
    run: str = ""
    agent: str = ""
    folder: Path = Field(exclude=True)

    @property
    def dollars(self) -> float:
        """Spent by all rungs."""
        return sum(rung.dollars for rung in self.rungs)

    @property
    def latest(self) -> Metrics | None:
        """The newest measurement of the held-out tasks."""
        found = [rung.after for rung in self.rungs if rung.after is not None]
        return found[-1] if found else None

    @property
    def is_met(self) -> bool:
        """Whether a rung has met the goal."""
        return any(rung.status == "met" for rung in self.rungs)

    @property
    def prompts(self) -> Path | None:
        """The file of better prompts; None if there is none."""
        path = self.folder / PROMPTS_FILE
        return path if path.is_file() else None

    def save(self) -> None:
        """Write ``bill.json``."""
        make_private_folder(self.folder)
        write_json(self.folder / BILL_FILE, self.model_dump(mode="json"))

    @classmethod
    def open(cls, folder: Path, goal: str, max_cost: float, model: str) -> Self:
        """Return the bill in a folder, which goes on, or a new one.

        Raises:
            RunFolderError: There is one that cannot be read.
        """
        path = folder / BILL_FILE
        new = cls(goal=goal, max_cost=max_cost, model=model, folder=folder)
        if not path.is_file():
            return new
        try:
            kept = parse_json(path.read_text(encoding="utf-8"))
            found = cls.model_validate({**kept, "folder": folder})
            return new.model_copy(
                update={name: getattr(found, name) for name in _KEPT_FIELDS}
            )
        except (OSError, ValueError, TypeError) as error:
            raise RunFolderError(
                f"{path} cannot be read ({error}). Move it away to start again."
            ) from None


def folder_of(config: TrainingConfig) -> Path:
    """Return the folder of a ladder: another one for other tasks or settings.

    Args:
        config: Of the agent, located.
    """
    settings = config.model_dump(mode="json")
    told = {key: settings[key] for key in settings if key not in _NOT_TASKS}
    tasks = b""
    if is_tasks_file(config.scenario):
        tasks = Path(TaskSource.parse(config.scenario).path).read_bytes()
    text = json.dumps(told, sort_keys=True).encode()
    mark = hashlib.sha256(text + tasks).hexdigest()[:6]
    return config.output / f"improve-{config.agent_name}-{mark}"
