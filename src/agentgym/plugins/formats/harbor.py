"""HarborScenario: Harbor's task folders, as far as the sandbox can serve them.

A task is a folder with ``instruction.md``, ``task.toml``, ``environment/`` and
``tests/test.sh``, which writes a reward from 0 to 1 to ``/logs/verifier/reward.txt``.
In the sandbox ``/app``, ``/tests`` and ``/logs`` are parts of the workspace, so that
``test.sh`` runs as it is. A task whose Dockerfile installs programs, or whose tests
need the network, needs an image, which Harbor itself runs.
"""

import asyncio
import json
import re
import tomllib
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from agentgym.core.task import Split, Task
from agentgym.core.tools import ToolSpec, bound_tools
from agentgym.core.trajectory import Reward, Trajectory
from agentgym.errors import ScenarioError, UsageError
from agentgym.plugins.collect.toolbox import Bash, FileEditor, Search, Workbench
from agentgym.sandbox.commands import Argv, SandboxConfig
from agentgym.sandbox.workspace import Workspace
from agentgym.scenarios.base import Environment, Scenario, own_environment

TASK, CONFIG, TEST = "instruction.md", "task.toml", "tests/test.sh"
_HIDDEN = ".harbor"
# Links in the sandbox's root, by their names.
_LINKS = {
    "/app": "/workspace",
    "/tests": f"/workspace/{_HIDDEN}/tests",
    "/logs": f"/workspace/{_HIDDEN}/logs",
}
_REWARDS = (
    f"{_HIDDEN}/logs/verifier/reward.txt",
    f"{_HIDDEN}/logs/verifier/reward.json",
)
_BASES = re.compile(r"(?:python|debian|ubuntu|alpine)(?::[\w.-]+)?$")
_HARMLESS = ("FROM", "WORKDIR", "COPY", "CMD", "ENTRYPOINT", "LABEL", "EXPOSE")
_NETWORK = re.compile(r"\b(apt-get|apt|pip|pip3|uv|uvx|curl|wget|npm|git clone)\b")
_USUAL_S = 600.0
_MOST_CHARACTERS = 200_000
_BY = "Harbor can run it: harbor run -p {folder}"


@dataclass(frozen=True)
class HarborTask:
    """A task folder that was read.

    Attributes:
        problem: Why the sandbox cannot serve the task; empty if it can.
    """

    name: str
    folder: Path
    instruction: str
    category: str = ""
    files: Mapping[str, str] = field(default_factory=dict)
    tests: Mapping[str, str] = field(default_factory=dict)
    timeout_s: float = _USUAL_S
    problem: str = ""

    @classmethod
    def read(cls, folder: Path) -> "HarborTask":
        """Read a task's folder."""
        try:
            config = tomllib.loads((folder / CONFIG).read_text(encoding="utf-8"))
            instruction = (folder / TASK).read_text(encoding="utf-8")
            docker = folder / "environment" / "Dockerfile"
            recipe = docker.read_text(encoding="utf-8") if docker.exists() else ""
            tests = _texts(folder / "tests")
            files = dict(_copied(folder / "environment", recipe))
        except (OSError, ValueError) as error:
            return cls(folder.name, folder, "", problem=f"it cannot be read ({error})")
        compose = [*(folder / "environment").glob("docker-compose.y*ml")]
        problem = next(_problems(config, recipe, tests, bool(compose)), "")
        return cls(
            name=folder.name,
            folder=folder,
            instruction=instruction.strip(),
            category=str(config.get("metadata", {}).get("category") or "task"),
            files=files,
            tests=tests,
            timeout_s=float(config.get("verifier", {}).get("timeout_sec") or _USUAL_S),
            problem=problem,
        )


def _texts(folder: Path) -> dict[str, str]:
    """Return the texts of a folder's files, by relative path."""
    files = sorted(file for file in folder.rglob("*") if file.is_file())
    return {str(f.relative_to(folder)): f.read_text(encoding="utf-8") for f in files}


def _lines(recipe: str) -> Iterator[tuple[str, str]]:
    """Yield the instructions of a Dockerfile: the first word, and the rest."""
    for line in recipe.replace("\\\n", " ").splitlines():
        if (text := line.strip()) and not text.startswith("#"):
            word, _, rest = text.partition(" ")
            yield word.upper(), rest.strip()


def _copied(folder: Path, recipe: str) -> Iterator[tuple[str, str]]:
    """Yield the path in the workspace, and the text, of each file that is copied."""
    place = "/app"
    for word, rest in _lines(recipe):
        if word == "WORKDIR":
            place = rest
        elif word == "COPY":
            *sources, target = rest.split()
            target = target if target.startswith("/") else f"{place}/{target}"
            for source in sources:
                base = (folder / source).resolve()
                if not base.is_relative_to(folder.resolve()):
                    raise ValueError(f"COPY {source} is outside of {folder.name}")
                for file in sorted(base.rglob("*")) if base.is_dir() else [base]:
                    if file.is_file() and file.name != "Dockerfile":
                        inner = file.relative_to(base) if base.is_dir() else file.name
                        is_name = not base.is_dir() and not target.endswith(("/", "."))
                        whole = target if is_name else f"{target}/{inner}"
                        yield _inside(whole, place), file.read_text(encoding="utf-8")


def _inside(path: str, place: str) -> str:
    """Return a path of the image relative to its working folder."""
    import posixpath

    plain = posixpath.normpath(path)
    if plain != place and not plain.startswith(f"{place.rstrip('/')}/"):
        raise ValueError(f"COPY to {plain} is outside of the working folder {place}")
    return posixpath.relpath(plain, place)


def _problems(
    config: Mapping[str, Any], recipe: str, tests: Mapping[str, str], compose: bool
) -> Iterator[str]:
    """Yield why the sandbox cannot serve a task, if it cannot."""
    about = config.get("environment", {})
    if compose:
        yield "it needs several containers (docker-compose)"
    if image := about.get("docker_image"):
        yield f"it needs the image {image}"
    if about.get("gpus"):
        yield "it needs a GPU"
    for word, rest in _lines(recipe):
        if word == "FROM" and not _BASES.match(rest.split(" ")[0]):
            yield f"it needs the image {rest}"
        if word == "WORKDIR" and rest.rstrip("/") != "/app":
            yield f"its working folder is {rest}, not /app"
        if word not in _HARMLESS:
            yield f"its image needs root or the network: {word} {rest[:60]}"
    if "test.sh" not in tests:
        yield f"it has no {TEST}"
    for name, text in tests.items():
        if name.endswith(".sh") and (found := _NETWORK.search(text)):
            yield f"tests/{name} needs root or the network: {found[0]}"


def _bench(workspace: Workspace) -> Workbench:
    """Return a task's files, which a shell, an editor and a search act on."""
    kinds = (Bash(), FileEditor(), Search())
    tools = [tool for kind in kinds for tool in bound_tools(kind.on(workspace))]
    return Workbench(workspace, tools)


class HarborScenario(Scenario):
    """Tasks of Harbor in a folder, or a single task's folder."""

    name = "harbor"
    description = "Harbor's task folders that need no image: --data FOLDER."
    difficulty = "advanced"
    estimated_time = "for real models; minutes to hours, by the tasks"
    reward_range: ClassVar = (0.0, 1.0)
    max_turns = 30
    options: ClassVar = ("data",)
    judges_work = True

    def __init__(self, data: str = "") -> None:
        if not data:
            raise UsageError("harbor needs its tasks: give --data FOLDER.")
        folder = Path(data)
        folders = [folder] if (folder / CONFIG).is_file() else sorted(folder.glob("*/"))
        every = [HarborTask.read(f) for f in folders if (f / CONFIG).is_file()]
        self.left_out = [task for task in every if task.problem]
        self._tasks = {task.name: task for task in every if not task.problem}
        if not every:
            raise UsageError(f"{data} has no folder with a {CONFIG}.")
        if not self._tasks:
            first = self.left_out[0]
            raise UsageError(
                f"None of the {len(every)} tasks in {data} can run in the sandbox. "
                f"{first.name}: {first.problem}. {_BY.format(folder=first.folder)}"
            )

    def system_prompt(self) -> str:
        """Return the agent's role."""
        return (
            "You work on the files of a project in the folder /app. Use the tools to "
            "look, to change files and to run commands; then say that you are done."
        )

    def tools(self) -> list[ToolSpec]:
        """Return the tools: a shell, an editor and a search."""
        return [tool.spec for tool in _bench(Workspace({})).tools()]

    def notes(self) -> list[str]:
        """Return a sentence for each task that is left out: why, and how to run it."""
        return [
            f"{task.name} is left out: {task.problem}. {_BY.format(folder=task.folder)}"
            for task in self.left_out
        ]

    def tasks(self, split: Split, seed: int, count: int) -> list[Task]:
        """Return tasks of a split: of four, two for training, and one of each other."""
        names = list(self._tasks)
        turns = (Split.TEST, Split.TRAIN, Split.VALIDATION, Split.TRAIN)
        alone = len(names) < len(turns)
        return [
            Task(
                id=name,
                split=split,
                seed=seed,
                family=self._tasks[name].category,
                level=3,
                instruction=self._tasks[name].instruction,
            )
            for place, name in enumerate(names)
            if alone or turns[place % len(turns)] is split
        ][:count]

    def sandbox_config(self) -> SandboxConfig:
        """Return a sandbox with the folders that tests expect; it isolates always."""
        links = tuple(_LINKS.items())
        return SandboxConfig(cache_bytes=0, subprocesses=True, links=links)

    def create_environment(self, task: Task) -> Environment:
        """Return the task's files, as its image has them."""
        files = self._tasks[task.id].files
        workspace = Workspace(
            files, max_characters=_MOST_CHARACTERS, sandbox=self.sandbox
        )
        return _bench(workspace)

    def calculate_reward(
        self, task: Task, environment: Environment, trajectory: Trajectory
    ) -> Reward:
        """Run the task's test.sh on the files that the agent left."""
        mine, found = own_environment(Workbench, environment), self._tasks[task.id]
        tests = {f"{_HIDDEN}/tests/{name}": text for name, text in found.tests.items()}
        kept = {f"{_HIDDEN}/logs/verifier/.keep": ""}
        files = {**mine.workspace.files, **tests, **kept}
        command = Argv(("bash", "/tests/test.sh"))
        run = self.sandbox.run(files, command, timeout_s=found.timeout_s, collect=True)
        result = asyncio.run(run)
        written = result.files or {}
        text = next((t for name in _REWARDS if (t := written.get(name))), None)
        if text is None:
            last = (result.stderr or result.stdout or "").strip()[-200:]
            raise ScenarioError(
                f"{task.id}: tests/test.sh wrote no reward ({result.status}): {last}"
            )
        value = min(1.0, max(0.0, _reward(task.id, text)))
        return Reward(value, value >= 1.0, {"tests": value})


def _reward(task: str, text: str) -> float:
    """Return the number in a reward file: alone, or as ``reward`` of a JSON object."""
    with suppress(ValueError, LookupError, TypeError, AttributeError):
        found = json.loads(text)
        return float(found["reward"] if isinstance(found, dict) else found)
    raise ScenarioError(f"{task}: {text[:80]!r} in its reward file is not a number.")
