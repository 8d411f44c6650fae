"""Verdicts and tools are those of the benchmark's own package, for every entry."""

import json
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from agentgym.core.task import Split
from agentgym.core.tools import ToolSpec, parse_arguments
from agentgym.errors import AgentGymError
from agentgym.plugins.bench.bfcl import package
from agentgym.plugins.bench.bfcl.entries import (
    MULTI_TURN,
    RELEVANCE,
    SINGLE_TURN,
    ConversationEntry,
    Entry,
    read_conversations,
    read_entries,
    specs_of,
    split_entries,
)
from agentgym.plugins.bench.bfcl.programs import Programs, program_tools, write_programs
from agentgym.plugins.bench.bfcl.scenario import Checker, MadeCall, right_calls
from agentgym.sandbox import Sandbox, SandboxConfig

pytestmark = [pytest.mark.network, pytest.mark.sweep]

Written = list[tuple[str, str]]


@pytest.fixture(scope="module")
def fetched(tmp_path_factory: pytest.TempPathFactory) -> Iterator[package.Package]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AGENTGYM_HOME", str(tmp_path_factory.mktemp("home")))
        try:
            place = package.fetch()
        except AgentGymError as error:
            pytest.skip(str(error))
        yield package.Package(place)


def answers_to(entry: Entry) -> Iterator[Written]:
    """Yield answers, the first one right, others wrong in a way each."""
    right = [(n.tool, dict(n.arguments)) for n in right_calls(entry)]
    spare = entry.functions[0]["name"] if entry.functions else "none"
    spare = spare.replace(".", "_")
    made: list[list[tuple[str, Any]]] = [right, [], [(spare, {})], [*right, *right]]
    if right:
        (name, given), *others = right
        made += [
            right[::-1],
            others,
            [(f"{name}_x", given), *others],
            [(name, {**given, "unheard_of": 1}), *others],
            [(name, {}), *others],
        ]
        for key, value in given.items():
            made += [
                [(name, {k: v for k, v in given.items() if k != key}), *others],
                [(name, {**given, key: [value]}), *others],
                [(name, {**given, key: str(value).upper()}), *others],
                [(name, {**given, key: 7}), *others],
                [(name, {**given, key: None}), *others],
            ]
    for calls in made:
        yield [(n, json.dumps(arguments)) for n, arguments in calls]
    yield [(spare, "{")]


def require_same(spec: ToolSpec, theirs: dict[str, Any]) -> None:
    """Check that a tool is described as the package describes it."""
    function = theirs["function"]
    assert (spec.name, spec.description) == (function["name"], function["description"])
    assert spec.parameters == {"additionalProperties": False, **function["parameters"]}


def ask_them(
    fetched: package.Package, asked: Sequence[tuple[Entry, object]]
) -> dict[str, Any]:
    """Return what the package itself says of answers to entries."""
    script = Path(__file__).with_name("theirs.py")
    text = "".join(json.dumps([e.category, e.id, a]) + "\n" for e, a in asked)
    done = subprocess.run(
        [sys.executable, str(script), str(fetched.path)],
        input=text,
        capture_output=True,
        text=True,
        timeout=900,
        check=True,
    )
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def conversations_of(entry: ConversationEntry) -> Iterator[list[Written]]:
    """Yield the calls of each turn, the first time right, then wrong in a way each."""
    calls = iter(entry.named_calls())
    right = [[next(calls) for _ in turn] for turn in entry.right_calls]
    last = max(n for n, turn in enumerate(right) if turn)
    odd = [[(n, {k: f"{v}x" for k, v in a.items()}) for n, a in t] for t in right]
    kept = [turn for turn in right if turn]
    shifted = [[call for turn in right for call in turn], *([] for _ in right[1:])]
    twice = [turn * 2 for turn in right]
    made = [right, odd, shifted, twice, right[:last], [*right[:last], []]]
    made += [[turn[1:] for turn in right], [kept[0], *right[1:]]]
    for turns in made:
        rest = [[] for _ in range(len(right) - len(turns))]
        yield [
            [(name, json.dumps(given)) for name, given in turn]
            for turn in [*turns, *(rest if turns is not right[:last] else [])]
        ]


@pytest.mark.timeout(1200)  # 1,400 conversations, two programs each
def test_every_verdict_and_tool_of_conversations_is_the_packages_own(
    fetched: package.Package,
) -> None:
    entries = read_conversations(fetched, MULTI_TURN)[::4]
    asked = [(e, turns) for e in entries for turns in conversations_of(e)]
    theirs = ask_them(fetched, [(e, turns) for e, turns in asked])
    seen: Counter[tuple[str, bool]] = Counter()
    with TemporaryDirectory() as folder:
        write_programs(fetched, Path(folder))
        sandbox = Sandbox(SandboxConfig(python_path=(Path(folder),)))
        for (entry, turns), verdict in zip(asked, theirs["verdicts"], strict=True):
            programs = Programs(entry, [], sandbox)
            programs.turns = [
                [[name, parse_arguments(text)] for name, text in turn] for turn in turns
            ]
            programs.ended = len(turns) == len(entry.turns)
            valid = programs.is_valid()
            seen[entry.category, valid] += 1
            assert valid == verdict, (entry.id, turns)
        sandbox.close()
    assert all(seen[name, good] for name in MULTI_TURN for good in (True, False))
    for entry in entries:
        ours = {spec.name: spec for spec in program_tools(entry)}
        for tool in theirs["tools"][entry.id]:
            require_same(ours[tool["function"]["name"]], tool)


def test_every_verdict_and_tool_is_the_packages_own(fetched: package.Package) -> None:
    entries = read_entries(fetched)
    asked = [(entry, answer) for entry in entries for answer in answers_to(entry)]
    theirs = ask_them(fetched, [(e, answer) for e, answer in asked])
    checker = Checker(fetched)
    seen: Counter[tuple[str, bool]] = Counter()
    for (entry, answer), verdict in zip(asked, theirs["verdicts"], strict=True):
        calls = [MadeCall(name, parse_arguments(text)) for name, text in answer]
        ours = checker.accepts(entry, calls)
        seen[entry.category, ours] += 1
        expected = verdict if isinstance(verdict, bool) else False
        assert ours == expected, (entry.id, answer, verdict)
    assert all(seen[name, good] for name in SINGLE_TURN for good in (True, False))
    for entry in entries:
        for spec, tool in zip(specs_of(entry), theirs["tools"][entry.id], strict=True):
            require_same(spec, tool)


def test_nothing_is_in_two_splits(fetched: package.Package) -> None:
    found = split_entries(read_entries(fetched))
    names = {
        split: {f["name"] for entry in every for f in entry.functions}
        for split, every in found.items()
    }
    assert not names[Split.TRAIN] & (names[Split.VALIDATION] | names[Split.TEST])
    assert not names[Split.VALIDATION] & names[Split.TEST]
    test = Counter(entry.category for entry in found[Split.TEST])
    train = Counter(entry.category for entry in found[Split.TRAIN])
    assert set(test) == set(SINGLE_TURN)
    assert set(train) == set(SINGLE_TURN) - {RELEVANCE}
