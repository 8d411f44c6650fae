"""Create a first tasks file whose requests a language model writes."""

import asyncio
import json
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any

from agentgym.core.tools import Tool, ToolSpec
from agentgym.errors import ModelCallError, ModelError, ReplyError, UsageError
from agentgym.models.endpoint import EndpointLlm
from agentgym.models.reference import Endpoint
from agentgym.models.reply import read_reply
from agentgym.scenarios.tool_tasks.splitting import LEAST, plain_words, split_lines
from agentgym.scenarios.tool_tasks.task_file import TaskLine, read_line

_EACH = 8
"""Number of requests to ask the model for at once."""
_LEAST_OTHERS = 2
"""Least number of tools that a request for several tools must leave out. Otherwise
calling all tools would earn the reward."""
_TRIES = 2
_TIMEOUT_S = 180.0
_MOST_TOLD = 40
_KEYS = ("instruction", "expect", "ordered")
_DATE = re.compile(r"\d{4}-\d{2}|\d{1,2}:\d{2}")
_SYSTEM = """\
You write requests that users make of an assistant which has tools, and the tool calls \
that each request needs. They are used to train and to test the assistant.

Answer with JSON Lines and nothing else: {count} lines, each an object
{{"instruction": "what the user says", "expect": [{{"tool": "NAME", "args": {{}}}}]}}
- `expect` has the calls that are needed, in their order, with all required arguments; \
an optional one only where the request asks for it.
- The request says every value that the first call needs, as a user would say it: \
numbers, names and codes literally. It names no tool and no argument.
- Every line is about other names, numbers, dates and places, and is worded \
differently: a question, an order, a remark; short and long; some with a word of why.
- Requests are such that no other call is needed, and one right answer is certain.
"""
_HEAD = """\
# Written by {model}, of the schemas of {count} tools: {names}.
# What a model takes for a request is not what your users say: read every line, and
# replace it by real ones where you have them. See `agentgym scenarios check`.
# Lines that start with # are skipped.
"""


@dataclass
class Written:
    """A tasks file written by a language model.

    Attributes:
        dropped: Number of the model's lines that were left out, by reason.
    """

    text: str
    tasks: int
    dropped: Counter[str] = field(default_factory=Counter)


async def written_tasks(
    endpoint: Endpoint,
    tools: Sequence[Tool],
    prompts: Sequence[str] = (),
    *,
    on_progress: Callable[[str], None] = lambda text: None,
) -> Written:
    """Ask a language model for requests for each tool, and for several tools."""
    llm = EndpointLlm(endpoint)
    author = _Author(llm, {tool.spec.name: tool.spec for tool in tools}, prompts)
    try:
        for topic in author.topics():
            made = await author.write(topic)
            on_progress(f"{topic}: {made} requests")
    except ModelCallError as error:
        if not author.lines:
            raise
        on_progress(f"Ended early: {error}")
    finally:
        await llm.close()
    try:
        split_lines(author.lines)
    except UsageError as error:
        why = "; ".join(f"{n}: {w}" for w, n in author.dropped.items())
        raise ModelError(
            f"{endpoint.model} wrote {len(author.lines)} lines that can be used. "
            f"{error}" + (f" Left out {why}." if why else "")
        ) from None
    names = ", ".join(author.specs)
    head = _HEAD.format(model=endpoint.model, count=len(author.specs), names=names)
    body = "".join(
        json.dumps(line.source, ensure_ascii=False) + "\n" for line in author.lines
    )
    return Written(head + body, len(author.lines), author.dropped)


class _Author:
    """Asks a language model for lines of a tasks file, and keeps the valid ones."""

    def __init__(
        self, llm: EndpointLlm, specs: dict[str, ToolSpec], prompts: Sequence[str]
    ) -> None:
        self.specs = specs
        self.lines: list[TaskLine] = []
        self.dropped: Counter[str] = Counter()
        self._llm = llm
        self._prompts = prompts
        self._seen: set[str] = set()

    def topics(self) -> Iterator[str]:
        """Yield topics to ask for: a tool, or e.g. "several tools, 1 of 3"."""
        yield from self.specs
        wanted = 2 * sum(LEAST.values())
        several = (
            max(1, len(self.specs) // 2) if len(self.specs) >= 2 + _LEAST_OTHERS else 0
        )
        for number in range(1, several + 1):
            yield f"several tools, {number} of {several}"
        for number in range(1, 1 + wanted // _EACH):
            if len(self.lines) >= wanted:
                return
            yield f"any tools, {number}"

    async def write(self, topic: str) -> int:
        """Ask for requests about a topic; return the number of lines that were kept."""
        before = len(self.lines)
        for _ in range(_TRIES):
            if len(self.lines) - before >= _EACH // 2:
                break
            try:
                async with asyncio.timeout(_TIMEOUT_S):
                    answer = await self._llm(self._messages(topic))
            except TimeoutError:
                raise ModelCallError(
                    f"No answer about {topic} in {_TIMEOUT_S:.0f} s."
                ) from None
            try:
                said = read_reply(answer).content
            except ReplyError as error:
                self.dropped[f"an answer about {topic}: {error}"] += 1
                continue
            found = list(_objects(said))
            if not found:
                self.dropped[f"an answer about {topic} that holds no task"] += 1
            for value in found:
                self._keep(value)
        return len(self.lines) - before

    def _messages(self, topic: str) -> list[dict[str, Any]]:
        about = f"Each request needs the tool {topic}, once, and no other."
        if topic not in self.specs:
            about = "Each request needs two or three calls, of different tools"
            if topic.startswith("any"):
                about = "Take the tools in turn"
            about += ", such as users of this assistant would ask for in one go."
        schemas = [
            {"name": s.name, "description": s.description, "parameters": s.parameters}
            for s in self.specs.values()
        ]
        said = f"Tools:\n{json.dumps(schemas, ensure_ascii=False)}\n\n"
        for prompt in self._prompts:
            said += f"The assistant was told:\n{prompt}\n\n"
        said += f"{about}\n{self._variety(topic)}"
        return [
            {"role": "system", "content": _SYSTEM.format(count=_EACH)},
            {"role": "user", "content": said},
        ]

    def _variety(self, topic: str) -> str:
        """Return an instruction to use other names and values than in earlier lines."""
        rng = Random(f"{topic}/{len(self.lines)}")
        letters = ", ".join(rng.sample("ABCDEFGHIJKLMNOPRSTUVWYZ", _EACH))
        numbers = ", ".join(str(rng.randrange(1000, 99999)) for _ in range(_EACH))
        message = (
            f"Let names begin with {letters}; where numbers or codes are needed, make "
            f"them of {numbers}."
        )
        used = list(dict.fromkeys(v for line in self.lines for v in line.values))
        recent = ", ".join(used[-_MOST_TOLD:])
        return (
            f"{message} Values that must not come again: {recent}." if used else message
        )

    def _keep(self, value: dict[str, Any]) -> None:
        known = {key: value[key] for key in _KEYS if key in value}
        for call in known["expect"] if isinstance(known.get("expect"), list) else []:
            if isinstance(call, dict):
                call.pop("answer", None)  # made up: a stub fits the tool's type
        try:
            number = len(self.lines) + 1
            text = json.dumps(known, ensure_ascii=False)
            line = read_line(number, text, self.specs, checked=False)
        except ValueError as error:
            self.dropped[str(error)] += 1
            return
        if (key := plain_words(line.instruction)) in self._seen:
            self.dropped["the same request came before"] += 1
        elif (needed := len({n.tool for n in line.expect})) > 1 and (
            len(self.specs) - needed < _LEAST_OTHERS
        ):
            self.dropped["a request that needs nearly every tool there is"] += 1
        elif missing := _unsaid(line):
            self.dropped[f"a request that does not say {missing}"] += 1
        else:
            self._seen.add(key)
            self.lines.append(line)


def _unsaid(line: TaskLine) -> str:
    """Return the name of an argument whose value the request lacks; "" if none."""
    # An agent cannot guess numbers and codes, so the request must contain them
    # literally.
    said = re.sub(r"[\s,.'_-]", "", line.instruction.lower())
    first = line.expect[0]
    for name, value in first.arguments.items():
        if name in first.by_outcome or isinstance(value, bool | list | dict):
            continue
        text = str(value).removesuffix(".0")
        if not any(c.isdigit() for c in text) or len(text) < 2 or _DATE.match(text):
            continue
        if re.sub(r"[\s,.'_-]", "", text.lower()) not in said:
            return name
    return ""


def _objects(said: str) -> Iterator[dict[str, Any]]:
    """Yield the JSON objects in a list, an object with a list, or JSON Lines."""
    text = re.sub(r"^\s*```\w*\s*$", "", said, flags=re.MULTILINE).strip()
    values: list[Any] = []
    try:
        values = [json.loads(text)]
    except (ValueError, RecursionError):
        for line in text.splitlines():
            try:
                values.append(json.loads(line.strip().rstrip(",")))
            except (ValueError, RecursionError):
                continue
    for value in values:
        inner = value if isinstance(value, list) else [value]
        if isinstance(value, dict) and "instruction" not in value:
            inner = next((v for v in value.values() if isinstance(v, list)), [])
        yield from (each for each in inner if isinstance(each, dict))
