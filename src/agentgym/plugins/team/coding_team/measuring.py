"""Measure the time and memory of a function call in a sandbox."""

import ast
import json

from agentgym.errors import ToolError
from agentgym.sandbox import SandboxResult

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
_SHOWN = 160


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
