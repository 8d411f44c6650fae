"""Create a first tasks file from the schemas of tools, without a language model."""

import json
import re
import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from agentgym.core.agent import COMMAND, is_command, program_name
from agentgym.core.made_up import NoValueError, made_up
from agentgym.core.tools import Tool, ToolSpec, result_text
from agentgym.errors import NextCommand, UsageError
from agentgym.scenarios.tool_tasks.splitting import LEAST

_WORDINGS = (
    "{what}. {values}.",
    "Please do this for me: {what}. {values}.",
    "{values}. With that, {what}.",
    "I would like you to {what}, {values}.",
    "Could you {what}? Here is what you need: {values}.",
    "One thing today: {what} ({values}).",
    "{what}, please, and take {values}.",
    "My request is simple. {what}; {values}. Thanks!",
)
_OF_EACH_TOOL = 2 * len(_WORDINGS)
"""Requests for each tool: of four tools, 16 are held out, which show a large gain."""
_SENTENCE_END = r"(?<=[.!?])(?<!e\.g\.)(?<!i\.e\.)(?<!etc\.)(?<!cf\.)\s(?![a-z(])"
_HEAD = """\
# A starter file, made from the schemas of {count} tools: {names}.
# What it can check: that the tool a request names is called, with the values it gives.
# What it cannot: whether that is what your users want, say, or need several calls for.
# The values are made up. Replace lines by real requests; then see
# `agentgym scenarios check`. Lines that start with # are skipped.
"""


def starter(tools: Sequence[Tool]) -> str:
    """Return the text of a tasks file with made-up requests for each tool."""
    specs = [tool.spec for tool in tools]
    least = 2 * sum(LEAST.values())
    each = max(_OF_EACH_TOOL, -(-least // len(specs)))
    names = ", ".join(spec.name for spec in specs)
    body = ""
    for spec in specs:
        try:
            lines = [json.dumps(s, ensure_ascii=False) for s in _lines(spec, each)]
        except NoValueError:
            lines = [
                f"# No arguments were found that {spec.name} accepts: write its lines."
            ]
        body += "".join(f"{line}\n" for line in lines)
    return _HEAD.format(count=len(specs), names=names) + body


def _lines(spec: ToolSpec, count: int) -> Iterator[dict[str, Any]]:
    required = spec.parameters.get("required", [])
    what = _plain(spec)
    if not required:
        count = min(count, len(_WORDINGS))
    for number in range(count):
        args = made_up(spec.parameters, f"{spec.name}/{number}", accepts=spec.accepts)
        message = ", ".join(
            f"{name.replace('_', ' ')} {result_text(value)}"
            for name, value in args.items()
        )
        wording = _WORDINGS[number % len(_WORDINGS)]
        text = wording.format(what=what, values=message or "nothing else is needed")
        yield {
            "instruction": text[0].upper() + text[1:],
            "expect": [{"tool": spec.name, "args": args}],
        }


def _plain(spec: ToolSpec) -> str:
    """Return the first sentence of a tool's description, else its name in words."""
    described = spec.description.strip() or spec.name.replace("_", " ")
    if within := re.search("<summary>(.*?)</summary>", described, re.S):  # pydantic-ai
        described = within[1]
    first = re.split(_SENTENCE_END, described)[0].strip(" .!?")
    return first[:1].lower() + first[1:]


def starter_of(
    agent: str, tools_from: str | None, tools: Sequence[Tool], *, write: bool
) -> UsageError:
    """Return the error for an agent without tasks, which says how to get them."""
    stem = program_name(agent) if is_command(agent) else agent.rpartition(":")[2]
    path = Path(f"{stem or 'agent'}_tasks.jsonl")
    options = ("--tasks", str(path), "--warm-start")
    text = starter(tools)
    if path.exists():
        same = path.read_bytes() == text.encode()
        still = ", still as it was made of the schemas" if same else ""
        return NextCommand(
            f"Which tasks? {path} is here{still}. To train on it:", options
        )
    whose = f"--agent {shlex.quote(agent)}"
    if tools_from is not None:
        whose = f"--tools-from {shlex.quote(tools_from)}"
    agent = agent.removeprefix(COMMAND)
    if not write:
        return UsageError(
            f"{agent} has no tasks to be trained on. Make some, of its tools:\n"
            f"    agentgym tasks starter {whose} --output {path}"
        )
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        return UsageError(f"Cannot write {path}: {error.strerror}.")
    names = ", ".join(tool.spec.name for tool in tools)
    count = sum(not line.startswith("#") for line in text.splitlines())
    return NextCommand(
        f"{agent} needs tasks to be trained on. Wrote {path}: {count} requests, made "
        f"of the schemas of {names}. They check that the tool that a request names is "
        "called with its values, not that this is what your users want. Their own "
        "requests are better: `agentgym tasks from-logs` takes them from logs, and "
        "`agentgym tasks starter --model-for-tasks` lets a model write some. To try "
        "these as they are:",
        options,
    )
