"""CodeReviewScenario: find planted defects, and report their files and lines."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Literal

from agentgym.core.task import Task
from agentgym.core.trajectory import Reward, Trajectory
from agentgym.errors import ToolError
from agentgym.packs.coding import functions, projects
from agentgym.packs.coding.environment import (
    ProjectScenario,
    ReadableProject,
)
from agentgym.packs.coding.families import (
    ProjectFamily,
    ProjectScene,
    build,
    refer_to_module,
    seed_fault,
)
from agentgym.packs.coding.projects import Module, Project
from agentgym.packs.kit.code_rewards import CodeFinding, find_problems
from agentgym.packs.kit.code_rewards.static_checks import EXTRA, require_checks
from agentgym.packs.kit.environment import recorded
from agentgym.packs.kit.phrases import read_phrases
from agentgym.packs.kit.rewards import grade
from agentgym.packs.kit.tasks import Draft
from agentgym.scenarios.base import Environment, own_environment
from agentgym.scenarios.plan_reward import PROGRESS, SPARE_CALLS, Attempts, melted

from .plants import Planted, PlantKind, of_kind, plant_all

_MOST_FINDINGS = 6
_LONGEST_MESSAGE = 48
Reported = tuple[str, int, str]
"""Path, line and kind of a problem that the agent reported."""


class ReviewEnvironment(ReadableProject):
    """A small Python project to review; the agent cannot change it."""

    def __init__(self, files: Mapping[str, str]) -> None:
        super().__init__(files)
        self.linted: set[str] = set()
        self.reports: list[Reported] = []

    def shown(self, name: str) -> str:
        """Return the text of a file, with a number before each line."""
        lines = self.workspace.files[name].rstrip("\n").split("\n")
        return "\n".join(f"{number}: {text}" for number, text in enumerate(lines, 1))

    @recorded
    def lint(self, path: str) -> str:
        """Check a file or a folder for problems."""
        name = self.call["path"] = self.workspace.resolve(path)
        files = self._below(name)
        found = [f for f in find_problems(files) if is_worth_a_line(f)]
        self.linted |= files.keys()
        lines = [_line(each) for each in found[:_MOST_FINDINGS]]
        if len(found) > len(lines):
            lines.append(f"({len(found) - len(lines)} more; check single files)")
        return "\n".join(lines) or "No problems."

    @recorded
    def report_finding(
        self, path: str, line: int, kind: Literal["bug", "security"]
    ) -> str:
        """Report a problem at a line of a file."""
        name = self.call["path"] = self.workspace.file(path)
        if name not in self.files_read | self.linted:
            self.forbid(f"look at {name} before you report.")
        if not 1 <= line <= self.workspace.files[name].count("\n"):
            raise ToolError(f"{name} has no line {line}.")
        if any(report[:2] == (name, line) for report in self.reports):
            raise ToolError(f"line {line} of {name} is reported already.")
        self.reports.append((name, line, kind))
        return f"Reported line {line} of {name}."

    def _below(self, name: str) -> dict[str, str]:
        """Return the text of a file, or of all files in a folder, by path."""
        every = self.workspace.files
        if name in every:
            return {name: every[name]}
        inside = {
            path: text
            for path, text in every.items()
            if name == "." or path.startswith(f"{name}/")
        }
        if not inside:
            raise ToolError(f"there is no file or folder {name}.")
        return inside


def is_worth_a_line(found: CodeFinding) -> bool:
    """Return whether ``lint`` shows a finding; not low ones, nor import order."""
    hint = found.kind == "security" and found.severity == "low"
    return not hint and found.rule != "I001"


def _line(found: CodeFinding) -> str:
    message = found.message.replace("`", "")
    if len(message) > _LONGEST_MESSAGE:
        message = message[:_LONGEST_MESSAGE].rsplit(" ", 1)[0]
    return f"{found.path}:{found.line}: {found.kind}: {message.rstrip('.')}"


PHRASES = read_phrases(Path(__file__).parent / "wording")

ERROR = -0.04
VIOLATION = -0.2
FALSE_REPORT = -0.15
_MOST_COUNTED = 2
_MOST_ERRORS = 6
_LOOK = 0.5


def score(task: Task, environment: ReviewEnvironment, trajectory: Trajectory) -> Reward:
    """Score a finished review.

    In a success, the agent reported every planted bug and security problem by file,
    line and kind, and reported nothing else. It also read or linted all requested
    files, broke no rule, and made few needless calls. A success earns 1, minus a little
    for each needless call.

    Without success, let ``n`` be the number of calls in the shortest solution. F1 (the
    harmonic mean of precision and recall) then earns up to 0.45 * (1 - 1/n). Reading or
    linting all requested files earns up to 0.225 / n. Each false report costs 0.15, so
    reporting every line does not pay.
    """
    attempts = Attempts.of(environment.books, trajectory)
    needed = [tool for tool, _ in task.goal["plan"]]
    defects = {tuple(defect) for defect in task.goal["defects"]}
    reports = set(environment.reports)
    hits, false = len(defects & reports), len(reports - defects)
    looked = set(task.goal["look"]) <= environment.files_read | environment.linted
    over = max(0, len(attempts.tools) - len(needed) - SPARE_CALLS[task.level])
    precise = hits == len(defects) and not false
    credit = PROGRESS * (1.0 - 1.0 / len(needed)) * f1(defects, reports)
    parts = {
        "found": credit * melted(over),
        "looked": PROGRESS / len(needed) * _LOOK * looked * melted(over),
        "false reports": FALSE_REPORT * false,
        "errors": ERROR * min(len(attempts.failed), _MOST_ERRORS),
        "rules": VIOLATION * min(attempts.violations, _MOST_COUNTED),
    }
    return grade(
        attempts,
        needed,
        parts,
        success=precise and looked and not attempts.violations and not over,
        arguments=(hits + looked) / (len(defects) + 1),
        error=ERROR,
    )


def f1(defects: Iterable[object], reports: Iterable[object]) -> float:
    """Return F1, the harmonic mean of precision and recall; 0 if no report is right."""
    planted, made = set(defects), set(reports)
    hits = len(planted & made)
    return 2 * hits / (len(planted) + len(made)) if hits else 0.0


_STYLE = 0.4
"""Probability that a reviewed module also has a style problem."""


def _review(
    instruction: str,
    files: Mapping[str, str],
    defects: Sequence[Reported],
    look: Sequence[str],
    first: str,
) -> Draft:
    """Return the content of a task.

    Args:
        instruction: The user's request.
        files: Text of each file by path.
        defects: Path, line and kind of each defect that the agent must report.
        look: Paths of the files that the agent must read or lint.
        first: The tool of the first needed call, for the files in ``look``.
    """
    paths = {path.partition("/")[0] for path in look} if len(look) > 1 else look
    fields = ("path", "line", "kind")
    plan: list[list[object]] = [[first, {"path": path}] for path in paths]
    plan += [["report_finding", dict(zip(fields, d, strict=True))] for d in defects]
    goal = {"defects": [[*d] for d in defects], "look": [*look], "plan": plan}
    return Draft(instruction, {"files": files}, goal)


def _module_review(*kinds: PlantKind) -> Callable[[ProjectScene], Draft]:
    """Return a family: review one module, which has one defect of each of ``kinds``."""

    def draft(scene: ProjectScene) -> Draft:
        project, module = build(scene)
        planted = _plant(scene, project, module, *kinds)
        return _review(
            scene.ask(file=refer_to_module(scene, module)),
            project.files | {module.path: planted.source},
            _at(module, planted),
            [module.path],
            "lint",
        )

    return draft


def _package_review(scene: ProjectScene) -> Draft:
    """Create a task to review a package: one or both modules have one defect each."""
    rng, project = scene.rng, projects.build(scene.rng, scene.names)
    files, defects = dict(project.files), list[Reported]()
    for module in rng.sample(project.modules, rng.choice((1, 2))):
        planted = _plant(scene, project, module, rng.choice(("bug", "security")))
        files[module.path] = planted.source
        defects += _at(module, planted)
    look = sorted(module.path for module in project.modules)
    request = scene.ask(package=project.package)
    return _review(request, files, sorted(defects), look, "lint")


def _comparison(scene: ProjectScene) -> Draft:
    """Create a task to find the function whose code differs from its docstring."""
    broken = seed_fault(scene, scene.rng.choice(functions.KINDS))
    path = broken.module.path
    line = broken.files[path].split("\n").index(f"    {broken.wrong}") + 1
    request = scene.ask(file=refer_to_module(scene, broken.module))
    return _review(request, broken.files, [(path, line, "bug")], [path], "read_file")


def _at(module: Module, planted: Planted) -> list[Reported]:
    return [(module.path, line, kind) for line, kind in planted.defects]


def _plant(
    scene: ProjectScene, project: Project, module: Module, *kinds: PlantKind
) -> Planted:
    """Add one defect of each of ``kinds`` to a module, and maybe a style problem."""
    rng = scene.rng
    wanted: list[PlantKind] = [*kinds]
    if rng.random() < _STYLE:
        wanted.append("style")
    plants = [rng.choice(of_kind(kind, scene.split)) for kind in wanted]
    rng.shuffle(plants)
    text = "\n".join(project.files.values())
    words = (*scene.names.nouns, *scene.names.adjectives)
    free = [word for word in words if word not in text]
    return plant_all(
        rng,
        project.files[module.path],
        plants,
        names=rng.sample(free, 2 * len(plants)),
        parameters=scene.names.parameters,
    )


_BUG, _HOLE = _module_review("bug"), _module_review("security")
_BOTH = _module_review("bug", "security")
FAMILIES = (
    ProjectFamily("review_clean", 1, PHRASES["review"], _module_review()),
    ProjectFamily("review_bug", 1, PHRASES["review"], _BUG),
    ProjectFamily("review_security", 1, PHRASES["review"], _HOLE),
    ProjectFamily("review_both", 2, PHRASES["review"], _BOTH),
    ProjectFamily("review_package", 2, PHRASES["review_package"], _package_review),
    ProjectFamily("compare", 3, PHRASES["compare"], _comparison),
)

SYSTEM_PROMPT = (
    "You are a code reviewer in a small Python project. Use the tools, then answer in "
    "a few words. Rules: look at a file before you report; report each bug and each "
    "security problem with its file, line and kind, and nothing else; style is not "
    "reported."
)


class CodeReviewScenario(ProjectScenario):
    """Tasks to find planted bugs and security problems in small Python packages.

    Raises:
        MissingExtraError: The extra ``code-quality`` is not installed.
    """

    name = "code_review"
    description = "Review small Python packages and report defects."
    difficulty = "intermediate"
    estimated_time = "10 to 20 minutes on 2 cores"
    max_turns = 9
    extras = (EXTRA,)
    prompt = SYSTEM_PROMPT
    environment = ReviewEnvironment
    families = FAMILIES

    def __init__(self) -> None:
        super().__init__()
        require_checks("The scenario code_review")

    def create_environment(self, task: Task) -> ReviewEnvironment:
        """Return a new environment with the project that the task asks to review."""
        return ReviewEnvironment(task.initial_state["files"])

    def calculate_reward(
        self, task: Task, environment: Environment, trajectory: Trajectory
    ) -> Reward:
        """Score a review by the agent's reports; see :func:`score`."""
        own = own_environment(ReviewEnvironment, environment)
        return score(task, own, trajectory)
