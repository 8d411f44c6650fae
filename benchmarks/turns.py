"""What a model call costs beside the model: its prompt's tokens, its answer's calls.

Conversations of a coding agent, in which each turn calls a tool and goes on from the
tokens before it. Compare with another checkout's source:

    uv run python benchmarks/turns.py --model ./my-model
    uv run python benchmarks/turns.py --model ./my-model --other ../old/src
"""

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Callable
from time import perf_counter, process_time
from typing import Any

from machine import machine

Turn = Callable[[Any, list[int]], Any]


def main() -> None:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="nano", help="nano, or a model's folder")
    parser.add_argument("--other", help="src of another checkout, to compare with")
    parser.add_argument("--conversations", type=int, default=60)
    parser.add_argument("--turns", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--alone", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.alone:
        print(json.dumps(measured(options)))
        return
    print(f"{machine()}\n")
    print("| source | ms a call | CPU ms a call |\n|---|---|---|")
    sources = (
        {"here": None, "other": options.other} if options.other else {"here": None}
    )
    found: dict[str, list[list[float]]] = {name: [] for name in sources}
    for _ in range(options.rounds):  # by turns: the machine may have other work
        for name, source in sources.items():
            found[name].append(in_process(source))
    best = {
        name: [min(column) for column in zip(*rows, strict=True)]
        for name, rows in found.items()
    }
    for name, (wall, cpu) in best.items():
        print(f"| {name} | {wall:.2f} | {cpu:.2f} |")
    if options.other:
        ratios = (a / b for a, b in zip(best["here"], best["other"], strict=True))
        print(f"| here / other | {' | '.join(f'{ratio:.2f}x' for ratio in ratios)} |")


def in_process(source: str | None) -> list[float]:
    """Return wall and CPU milliseconds a call, with another source if one is given."""
    environment = {**os.environ}
    if source:
        environment["PYTHONPATH"] = os.path.abspath(source)
    done = subprocess.run(
        [sys.executable, *sys.argv, "--alone"],
        env=environment,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return list(json.loads(done.stdout.splitlines()[-1]))


def measured(options: argparse.Namespace) -> list[float]:
    """Return wall and CPU milliseconds a call of this process's source."""
    from transformers import AutoTokenizer

    from agentgym.core.policy import ChatRequest
    from agentgym.models.nano import nano_path
    from agentgym.scenarios.registry import get_scenario

    source = nano_path() if options.model == "nano" else options.model
    tokenizer = AutoTokenizer.from_pretrained(source)
    scenario = get_scenario("coding")
    tools = [tool.to_openai() for tool in scenario.tools()]
    system = {"role": "system", "content": scenario.system_prompt()}
    turn = turns_of(tokenizer)
    calls, begun, used = 0, 0.0, 0.0
    for number in range(-3, options.conversations):
        if number == 0:
            begun, used = perf_counter(), process_time()
        user = {"role": "user", "content": f"Where is the price of item {number}?"}
        asked: list[Any] = [system, user]
        for step in range(options.turns):
            path = f"shop/prices_{step}.py"
            text = (
                '<tool_call>\n{"name": "read_file", "arguments": {"path": "'
                f'{path}"}}}}\n</tool_call>{tokenizer.eos_token}'
            )
            ids = tokenizer.encode(text, add_special_tokens=False)
            request = ChatRequest(asked, tools, session=f"{number}")
            [call] = turn(request, ids)
            asked = [
                *asked,
                {"role": "assistant", "content": "", "tool_calls": [call.to_openai()]},
                {
                    "role": "tool",
                    "tool_call_id": call.id,
                    "content": "VAT = 0.19\n" * 9,
                },
            ]
            calls += number >= 0
    spent = perf_counter() - begun, process_time() - used
    return [1000 * seconds / calls for seconds in spent]


def turns_of(tokenizer: Any) -> Turn:
    """Return what renders a request and reads an answer, as this source does it."""
    ends = frozenset({int(tokenizer.eos_token_id)})
    from agentgym.engines.tokens.chat_tokens import ChatTokens
    from agentgym.models.chat_template import ChatTemplate

    tokens = ChatTokens("m", tokenizer, ChatTemplate("m", tokenizer), ends, 100_000)

    def turn(request: Any, ids: list[int]) -> Any:
        prompt, _ = tokens.prompt(request)
        logprobs = [0.0] * len(ids)
        return tokens.result(
            request, prompt, ids, logprobs, reason="stop", version=0
        ).tool_calls

    return turn


if __name__ == "__main__":
    main()
