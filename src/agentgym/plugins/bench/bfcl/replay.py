"""Make calls on the benchmark's simulated programs, or check a whole conversation.

This script runs in the sandbox, together with the modules of the benchmark, since a
call may need too much time or memory, e.g. to compute a power with a billion digits. It
reads ``job.json``, and prints a JSON object with the last call's ``result``, or with
the checker's verdict, ``valid``. It does not import AgentGym.
"""

import json
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

_MODEL = "agentgym"
_PLACE = "bfcl_eval.eval_checker.multi_turn_eval"


def written(call: list[Any]) -> str:
    """Return a call (name and arguments) as Python source."""
    name, arguments = call
    return f"{name}({','.join(f'{key}={value!r}' for key, value in arguments.items())})"


def last_result(entry: dict[str, Any], turns: list[list[list[Any]]]) -> str:
    """Make the calls of all turns on new programs; return the last call's result."""
    calls = [written(call) for turn in turns for call in turn]
    play = import_module(f"{_PLACE}.multi_turn_utils").execute_multi_turn_func_call
    results, _ = play(
        func_call_list=calls,
        initial_config=entry["initial_config"],
        involved_classes=entry["involved_classes"],
        model_name=_MODEL,
        test_entry_id=entry["id"],
        long_context="long_context" in entry["id"],
    )
    return str(results[-1])


def is_valid(
    entry: dict[str, Any], turns: list[list[list[Any]]], answers: list[list[str]]
) -> bool:
    """Return whether the benchmark's checker accepts the calls of all turns."""
    made = [[[written(call) for call in turn]] if turn else [] for turn in turns]
    judge = import_module(f"{_PLACE}.multi_turn_checker").multi_turn_checker
    category = entry["id"].rpartition("_")[0]
    return bool(judge(made, answers, entry, category, _MODEL)["valid"])


def main() -> None:
    """Read ``job.json``; print the last call's result, or the checker's verdict."""
    job = json.loads(Path("job.json").read_text(encoding="utf-8"))
    entry, turns = job["entry"], job["turns"]
    if job["answers"] is None:
        found: dict[str, Any] = {"result": last_result(entry, turns)}
    else:
        found = {"valid": is_valid(entry, turns, job["answers"])}
    sys.stdout.write(json.dumps(found))


if __name__ == "__main__":
    main()
