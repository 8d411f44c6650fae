"""TeamEnvironment: a team's project in memory, with the tools of all roles."""

import ast
import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any, Literal

from agentgym.core.tools import Tool, bound_tools, tool
from agentgym.errors import MissingExtraError, RuleViolation, ToolError
from agentgym.packs.kit.code_rewards.static_checks import Kind, find_problems
from agentgym.packs.kit.environment import RecordingEnvironment, recorded
from agentgym.plugins.team.coding_team.languages import (
    TESTS,
    TeamLanguage,
    holds_tests,
    is_test,
    of_path,
)
from agentgym.plugins.team.coding_team.routing import (
    GENERATOR,
    changed_files,
    is_simple,
    next_roles,
)
from agentgym.sandbox import PythonScript, RunTests, Sandbox, SandboxResult, Workspace
from agentgym.scenarios.plan_reward import Books, ReceivedCall

SCRIPT = "measure_call.py"
"""Path of the measuring script among the project's files."""

_SOURCE = """\
import importlib, json, time, tracemalloc

module = importlib.import_module({module!r})
code = compile({call!r}, "call", "eval")
took = []
for _ in range(5):
    start = time.perf_counter()
    eval(code, vars(module))
    took.append(time.perf_counter() - start)
    if sum(took) > 1:
        break
tracemalloc.start()
eval(code, vars(module))
print()
kib = tracemalloc.get_traced_memory()[1] / 1024
print(json.dumps({{"ms": 1000 * min(took), "kib": kib}}))
"""


def script_for(path: str, call: str) -> str:
    """Return the source of a script that measures a call of a module's function."""
    if not path.endswith(".py"):
        raise ToolError(f"{path} is not a Python file; only those can be measured.")
    try:
        ast.parse(call.strip(), mode="eval")
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise ToolError(f"{call!r} is not an expression, such as f(2).") from error
    module = path.removesuffix(".py").replace("/", ".").removesuffix(".__init__")
    return _SOURCE.format(module=module, call=call.strip())


def measured(result: SandboxResult) -> str:
    """Describe the measured time and memory, or why the call failed."""
    # The measured code could have printed other numbers, so do not trust them.
    if result.status != "exited":
        return f"The call was stopped: {result.error or result.status}."
    lines = result.stdout.strip().splitlines()
    try:
        numbers = json.loads(lines[-1])
        return f"{numbers['ms']:.3f} ms, {numbers['kib']:.1f} KiB at most."
    except (IndexError, KeyError, TypeError, ValueError):
        last = (result.stderr.strip().splitlines() or ["no output"])[-1]
        return f"The call failed: {last[:_SHOWN]}"


MAX_ROUNDS = 3
"""Maximum number of turns of the generator, unless a person allows more."""
MEASURE_S = 10.0
"""Time limit in seconds for the script that measures a call."""
WRITING = ("write_file", "edit_file")
"""Tools for writing code; without use if a script plays the generator."""

_REVIEW = frozenset({"lint", "check_security"})
"""Tools that must have checked a file before it counts as reviewed."""
_MOST_CHARACTERS = 4_000
_MOST_LINES = 5
_MOST_FAILURES = 20
_SHOWN = 160
_SERIOUS = "high"


@dataclass
class TeamBooks(Books):
    """Record of the tool calls that models made.

    It is paused while the graph's own code makes the calls of a role, until the next
    ``hand_over``.
    """

    is_paused: bool = False

    @contextmanager
    def recording(self, call: ReceivedCall) -> Iterator[None]:
        """Run the block, which makes ``call``; record it unless this is paused."""
        self.is_paused = self.is_paused and call.tool != "hand_over"
        with nullcontext() if self.is_paused else super().recording(call):
            yield


class TeamEnvironment(RecordingEnvironment):
    """A team's project in memory, with the tools of all roles.

    A round is one turn of the generator.

    Args:
        files: Text of each file at the start, by relative path.
        sandbox: Sandbox for tests, checks and measured calls.
        max_rounds: Maximum number of rounds per request of the user.
        target: Path for code in the generator's answer, if it wrote no file itself.
        drafts: For a scripted generator: the files to write in each round, text by
            path. Rounds after the last entry write the last entry again. None if a
            model writes the code.

    Attributes:
        books: Record of the tool calls that models made. Calls by the graph's own code,
            which replaces a failed model, are not in it.
        fallbacks: Role of each turn in which the graph's own code replaced a failed
            model.
        rounds: Number of rounds so far for the user's request.
        max_rounds: Maximum of ``rounds``; a person can raise it.
    """

    def __init__(
        self,
        files: Mapping[str, str],
        sandbox: Sandbox,
        *,
        max_rounds: int = MAX_ROUNDS,
        target: str = "solution.py",
        drafts: Sequence[Mapping[str, str]] | None = None,
    ) -> None:
        super().__init__()
        self.books: TeamBooks = TeamBooks()
        self.workspace = Workspace(files, max_characters=100_000)
        self.fallbacks: list[str] = []
        self.rounds = 0
        self.max_rounds = max_rounds
        self._more = max_rounds
        self._sandbox = sandbox
        self._target = target
        self._drafts = drafts
        self._given = frozenset(files)
        self._start = dict(files)
        self._accepted = dict(files)
        self._checked: dict[str, set[str]] = {}
        self._findings: list[dict[str, Any]] = []
        self._results: dict[str, dict[str, Any]] = {}
        self._ran_none = False
        self._failed_before: set[str] = set()

    def tools(self) -> list[Tool]:
        """Return the tools, without those that write code if a script writes it."""
        found = bound_tools(self)
        if self._drafts is None:
            return found
        return [each for each in found if each.spec.name not in WRITING]

    def changed_files(self) -> dict[str, str | None]:
        """Return the text of each changed file, by path; None for a deleted file."""
        return self.workspace.changed()

    def begin(self) -> None:
        """Keep the files for the user's next request; forget rounds and findings."""
        self._start = dict(self.workspace.files)
        self._accepted = dict(self._start)
        self.rounds, self.max_rounds = 0, self._more
        self._findings.clear()
        self._failed_before.clear()
        self._forget_checks()

    @recorded
    def hand_over(
        self,
        to: Literal["generator", "reviewer", "executor", "finish"],
        note: str = "",
    ) -> str:
        """Hand over to a role, or finish."""
        del self.call["note"]  # any note is right
        allowed = next_roles(self.facts())
        if to not in allowed:
            raise RuleViolation(f"not {to} now: {allowed[0]} is next.")
        self._hand_over(to)
        return f"{to} is next." if to != "finish" else "The work is finished."

    @tool
    def team_state(self, event: str = "look", role: str = "") -> str:
        """Return the state of the work as JSON, after an event of the graph's own.

        Args:
            event: ``look``, ``fall_back``, ``hand_over``, ``take_back`` or
                ``more_rounds``.
            role: The role that the event is about.
        """
        if event == "fall_back":
            self.fallbacks.append(role)
            self.books.is_paused = True
        elif event == "hand_over":
            self._hand_over(role)
        elif event == "take_back":
            self.workspace.files = dict(self._accepted)
            self._forget_checks()
        elif event == "more_rounds":
            self.max_rounds = self.rounds + self._more
        elif event != "look":
            raise ToolError(f"there is no event {event!r}.")
        state = {
            "files": self.workspace.files,
            "findings": self._findings,
            "tests": self._tests(),
            "facts": self.facts(),
        }
        return json.dumps(state, ensure_ascii=False)

    @recorded
    def list_files(self, path: str = ".") -> str:
        """List the files in a folder."""
        return "\n".join(self.workspace.below(self.workspace.resolve(path)))

    @recorded
    def read_file(self, path: str) -> str:
        """Read a file."""
        name = self.workspace.file(path)
        return self.workspace.files[name][:_MOST_CHARACTERS].rstrip("\n")

    @recorded
    def write_file(self, path: str, text: str) -> str:
        """Write a file of code."""
        self._refuse(path)
        name = self.workspace.write(path, text)
        self._edited(name)
        return f"Wrote {name}."

    @recorded
    def edit_file(self, path: str, old: str, new: str) -> str:
        """Replace a text in a file of code."""
        self._refuse(path)
        name = self.workspace.file(path)
        self.workspace.replace(name, old, new)
        self._edited(name)
        return f"Edited {name}."

    @recorded
    async def lint(self, path: str) -> str:
        """Check a file for bugs and style."""
        language = of_path(path)
        if language is None or not language.check:
            return self._check("lint", path, ("bug", "style"))
        file = self.workspace.file(path)
        result = await self._sandbox.run(
            dict(self.workspace.files),
            language.checker(file),
            timeout_s=language.seconds,
        )
        problems = language.problems(result.checked())
        found = [_finding(file, line, _SERIOUS, said) for line, said in problems]
        return self._checked_by("lint", file, found, "No problems.")

    @recorded
    def check_security(self, path: str) -> str:
        """Check a file for security problems."""
        return self._check("check_security", path, ("security",))

    @recorded
    def check_complexity(self, path: str) -> str:
        """Check a file for functions that are too complex."""
        return self._check("check_complexity", path, ("complexity",))

    @recorded
    def report_finding(
        self,
        path: str,
        line: int,
        severity: Literal["high", "medium", "low"],
        message: str,
    ) -> str:
        """Report a problem that the checks cannot see; high sends the code back."""
        name = self.workspace.file(path)
        self._add_findings([_finding(name, line, severity, message)])
        return "Reported."

    @recorded
    async def run_tests(self, path: str = "") -> str:
        """Run all tests, or one test file."""
        files = dict(self.workspace.files)
        tests = self._test_files()
        wanted = tests
        if path.strip() and self.workspace.resolve(path) not in (".", "tests"):
            name = self.workspace.file(path)
            if name not in tests:
                raise ToolError(f"{name} is not a test file.")
            wanted = [name]
        self._ran_none = not tests
        if not tests:
            return "There are no tests. Write some."
        for language, some in _by_language(wanted):
            result = await self._sandbox.run(
                files,
                RunTests(tuple(some), language=language.name),
                timeout_s=language.seconds,
            )
            for name in some:
                self._results[name] = _report_of(name, result.checked(), some)
        report = _sum([self._results[name] for name in wanted])
        if report["failed"]:
            self._failed_before.add(self._version())
        return _shown(report)

    @recorded
    def write_test(self, path: str, text: str) -> str:
        """Write a file of tests."""
        name = self.workspace.resolve(path)
        if not holds_tests(name):
            raise ToolError(f"{name} is not named as tests are: {TESTS}.")
        if name in self._given:
            raise RuleViolation(f"{name} was given; write tests to another file.")
        self.workspace.write(name, text)
        self._results.pop(name, None)
        return f"Wrote {name}."

    @recorded
    async def measure(self, path: str, call: str) -> str:
        """Measure the time and memory of a call of a function in a file."""
        name = self.workspace.file(path)
        files = {**self.workspace.files, SCRIPT: script_for(name, call)}
        result = await self._sandbox.run(
            files, PythonScript(SCRIPT), timeout_s=MEASURE_S
        )
        return measured(result.checked())

    def facts(self) -> dict[str, Any]:
        """Return the facts that decide the next role; see ``routing.next_roles``."""
        changed = self._changed_code()
        reviewed = changed and all(
            self._checked.get(path, set()) >= _REVIEW for path in changed
        )
        return {
            "written": bool(changed),
            "simple": is_simple(self._code(self._start), self._code()),
            "reviewed": bool(reviewed),
            "serious": sum(f["severity"] == _SERIOUS for f in self._findings),
            "tests": self._tests(),
            "rounds": self.rounds,
            "max_rounds": self.max_rounds,
            "changed": changed,
            "test_files": self._test_files(),
            "given": sorted(self._given),
            "target": self._target,
            "repeated": self._tests() is None
            and self._version() in self._failed_before,
        }

    def _hand_over(self, to: str) -> None:
        self.books.is_paused = False
        if to != GENERATOR:
            return
        self._accepted = dict(self.workspace.files)
        if self._drafts:
            draft = self._drafts[min(self.rounds, len(self._drafts) - 1)]
            for path, text in draft.items():
                self._edited(self.workspace.write(path, text))
        self.rounds += 1

    def _refuse(self, path: str) -> None:
        name = self.workspace.resolve(path)
        if is_test(name):
            raise RuleViolation("tests are not the generator's: change the code.")
        if ".git" in name.lower().split("/"):  # saved, git would run programs
            raise ToolError(f"{name} is git's own; write another file.")

    def _edited(self, path: str) -> None:
        self._checked.pop(path, None)
        self._findings = [f for f in self._findings if f["path"] != path]
        self._results.clear()
        self._ran_none = False

    def _forget_checks(self) -> None:
        self._checked.clear()
        self._findings.clear()
        self._results.clear()
        self._ran_none = False

    def _check(self, name: str, path: str, kinds: tuple[Kind, ...]) -> str:
        file = self.workspace.file(path)
        try:
            problems = find_problems({file: self.workspace.files[file]}, kinds)
        except MissingExtraError as error:
            return self._checked_by(name, file, [], f"Not checked: {error}")
        is_python = file.endswith(".py")
        note = "No problems." if is_python else "Not checked: not Python."
        found = [
            _finding(p.path, p.line, p.severity, f"{p.rule} {p.message}")
            for p in problems
        ]
        return self._checked_by(name, file, found, note)

    def _checked_by(
        self, name: str, file: str, found: Sequence[dict[str, Any]], note: str
    ) -> str:
        """Store a check's findings; return the first ones, or ``note`` without any."""
        self._checked.setdefault(file, set()).add(name)
        self._add_findings(found)
        lines = [f"{f['path']}:{f['line']}: {f['message']}" for f in found]
        return "\n".join(line[:_SHOWN] for line in lines[:_MOST_LINES]) or note

    def _add_findings(self, found: Sequence[dict[str, Any]]) -> None:
        self._findings += [each for each in found if each not in self._findings]

    def _code(self, files: Mapping[str, str] | None = None) -> dict[str, str]:
        every = self.workspace.files if files is None else files
        return {path: text for path, text in every.items() if not is_test(path)}

    def _changed_code(self) -> list[str]:
        changed = changed_files(self._code(self._start), self._code())
        return [path for path in changed if path in self.workspace.files]

    def _test_files(self) -> list[str]:
        return [path for path in sorted(self.workspace.files) if holds_tests(path)]

    def _tests(self) -> dict[str, Any] | None:
        """Return the results of the tests since the last edit of code."""
        tests = self._test_files()
        done = [self._results[name] for name in tests if name in self._results]
        report = _sum(done)
        if self._ran_none and not tests:
            return report
        return (
            report if report["failed"] or (tests and len(done) == len(tests)) else None
        )

    def _version(self) -> str:
        """Return a hash of the code: of all files except tests."""
        text = json.dumps(self._code(), sort_keys=True)
        return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def _by_language(paths: Sequence[str]) -> list[tuple[TeamLanguage, list[str]]]:
    """Group test files by language."""
    found: dict[str, tuple[TeamLanguage, list[str]]] = {}
    for path in paths:
        if (language := of_path(path)) is not None:
            found.setdefault(language.name, (language, []))[1].append(path)
    return list(found.values())


def _finding(path: str, line: int, severity: str, message: str) -> dict[str, Any]:
    return {"path": path, "line": line, "severity": severity, "message": message}


def _report_of(
    name: str, result: SandboxResult, wanted: Sequence[str]
) -> dict[str, Any]:
    """Return the results of one test file; without any, one test has failed."""
    tests = [
        test
        for test in result.tests or ()
        if test.name.partition("::")[0] == name
        or (name == wanted[0] and test.name.partition("::")[0] not in wanted)
    ]
    bad = [test for test in tests if test.outcome != "passed"]
    failures = [f"{test.name}: {test.message}"[: 2 * _SHOWN] for test in bad]
    failed = len(bad)
    if not tests:  # a test file without tests proves nothing
        failed, failures = 1, [f"{name}: it holds no test that ran"]
    return {
        "passed": len(tests) - len(bad),
        "failed": failed,
        "failures": failures[:_MOST_FAILURES],
    }


def _sum(reports: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    return {
        "passed": sum(report["passed"] for report in reports),
        "failed": sum(report["failed"] for report in reports),
        "failures": [text for report in reports for text in report["failures"]],
    }


def _shown(report: Mapping[str, Any]) -> str:
    if not report["failed"]:
        return f"{report['passed']} passed."
    first = report["failures"][0][:_SHOWN]
    return f"{report['failed']} failed, {report['passed']} passed.\n{first}"
