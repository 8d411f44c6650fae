"""Bill: store the result and cost of each step of ``improve`` in ``bill.json``."""

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Literal, Self

from pydantic import Field

from agentgym.core.config import TrainingConfig
from agentgym.core.files import parse_json, write_json
from agentgym.core.records import Record
from agentgym.core.task import TaskSource
from agentgym.errors import RunFolderError
from agentgym.evaluate.metrics import Metrics
from agentgym.scenarios.packs import is_tasks_file
from agentgym.security.files import make_private_folder

BILL_FILE = "bill.json"
PROMPTS_FILE = "prompts.json"
_NOT_TASKS = {"yes", "output", "name", "episodes", "time", "gpu", "rent"}
_NOT_TASKS |= {"workers", "concurrency"}

Status = Literal["met", "missed", "skipped", "ended", "quoted"]


class RungResult(Record):
    """The result of one rung (one remedy that ``improve`` tried).

    Attributes:
        name: The rung's name, as users see it.
        status: ``met`` or ``missed``: whether held-out tasks reached the goal.
            ``skipped``: the rung cannot be used. ``ended``: the rung ended without a
            measurement. ``quoted``: the rung only asked GPU providers for prices.
        words: Sentences that describe the work, or say why no work was done.
        before: Metrics of the held-out tasks before the rung; None if they were not
            measured before, or if the rung was skipped.
        after: Metrics of the same tasks after the rung; None if not measured.
        dollars: US dollars spent.
        prompt_tokens: Prompt tokens of models on servers. A model that this process
            runs is not counted.
        response_tokens: Response tokens of the same models.
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


class Bill(Record):
    """The results and costs of ``improve`` so far.

    A rung is one remedy that ``improve`` tries; the ladder is all rungs together.

    Attributes:
        goal: The goal as text, ``pass_1=0.9``.
        max_cost: Upper limit on the US dollars of all rungs together.
        model: The model that the first rung measures.
        rungs: Results of rungs so far, in order.
        ended: Sentences that say why the ladder ended; empty while it goes on.
        run: Folder of the training run; empty before there is one.
        agent: Name and version of the saved agent, ``desk@2``; empty before training.
        folder: Folder of ``bill.json`` and of the new prompts.
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
        """US dollars that ``improve`` has spent so far."""
        return sum(rung.dollars for rung in self.rungs)

    @property
    def latest(self) -> Metrics | None:
        """The newest metrics of the held-out tasks; None if there are none."""
        found = [rung.after for rung in self.rungs if rung.after is not None]
        return found[-1] if found else None

    @property
    def is_met(self) -> bool:
        """Whether one of the tried remedies has met the goal."""
        return any(rung.status == "met" for rung in self.rungs)

    @property
    def prompts(self) -> Path | None:
        """The path of the better prompts; None if the file does not exist."""
        path = self.folder / PROMPTS_FILE
        return path if path.is_file() else None

    def take_back(self, results: Sequence[RungResult]) -> None:
        """Discard results of rungs that will be tried again, but keep their costs."""
        for each in results:
            if each.dollars:
                each.after, each.status = None, "ended"
                each.words = "It is run again, on the result of an earlier rung."
            else:
                self.rungs.remove(each)
        self.run = self.agent = ""

    def save(self) -> None:
        """Write ``bill.json``."""
        make_private_folder(self.folder)
        write_json(self.folder / BILL_FILE, self.model_dump(mode="json"))

    @classmethod
    def open(cls, folder: Path, goal: str, max_cost: float, model: str) -> Self:
        """Return the results and costs saved in a folder; empty if it has none.

        Goal, cost limit and model are always those of the arguments, not of the file.

        Raises:
            RunFolderError: The folder's ``bill.json`` cannot be read.
        """
        path = folder / BILL_FILE
        given = {"goal": goal, "max_cost": max_cost, "model": model, "folder": folder}
        try:
            kept = (
                parse_json(path.read_text(encoding="utf-8")) if path.is_file() else {}
            )
            return cls.model_validate({**kept, **given, "ended": ""})
        except (OSError, ValueError, TypeError) as error:
            raise RunFolderError(
                f"{path} cannot be read ({error}). Move it away to start again."
            ) from None


def folder_of(config: TrainingConfig) -> Path:
    """Return the folder in which ``improve`` keeps ``bill.json`` and the new prompts.

    Its name has a hash of the tasks and the settings, whose paths must be absolute. The
    hash leaves out settings that only limit or name the work, e.g. ``episodes``.
    """
    settings = config.model_dump(mode="json")
    chosen = {name: settings[name] for name in settings if name not in _NOT_TASKS}
    tasks = b""
    if is_tasks_file(config.scenario):
        tasks = Path(TaskSource.parse(config.scenario).path).read_bytes()
    text = json.dumps(chosen, sort_keys=True).encode()
    mark = hashlib.sha256(text + tasks).hexdigest()[:6]
    return config.output / f"improve-{config.agent_name}-{mark}"
