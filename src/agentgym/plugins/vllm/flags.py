"""Check names and values of flags of ``vllm serve``.

The file ``keys.txt`` has the name of each flag, and the kind of its values. To write
it for another release of vLLM, run this file with the Python of vLLM's environment,
which does not have AgentGym::

    python flags.py > keys.txt
"""

import re
import sys
from importlib import resources
from typing import Any

_NUMBERS = {
    "int": (r"-?\d+", "a whole number"),
    "float": (r"-?(\d+\.?\d*|\.\d+)(e-?\d+)?", "a number"),
    "size": (r"auto|-1|\d+(\.\d+)?[kKmMgGtT]?", "a whole number, as 4096 or 4k"),
}
"""For each kind of number, a regular expression, and words for messages."""


def known_flags() -> dict[str, str]:
    """Return for each flag of vLLM the kind of its values.

    Names of flags are written with underscores. A kind is ``int``, ``float``, ``size``,
    ``flag`` (true or false), a list of choices separated by ``|``, or an empty string
    if any value is accepted.
    """
    file = resources.files("agentgym.plugins.vllm").joinpath("keys.txt")
    lines = file.read_text(encoding="utf-8").splitlines()
    pairs = (line.partition(" ") for line in lines)
    return {name: kind for name, _, kind in pairs}


def value_problem(kind: str, value: Any) -> str:
    """Return why a flag's ``value`` is not of the kind ``kind``; empty if it is."""
    if not kind or value is None:
        return ""
    if kind == "flag":
        return "" if isinstance(value, bool) else "vLLM takes true or false"
    if kind in _NUMBERS:
        pattern, words = _NUMBERS[kind]
        return "" if re.fullmatch(pattern, str(value)) else f"vLLM takes {words}"
    choices = kind.split("|")
    return "" if str(value) in choices else f"vLLM takes one of {', '.join(choices)}"


def _kind(action: Any) -> str:
    """Return the kind of values that an argparse action accepts, by trying some."""

    def read(text: str) -> Any:
        try:
            return action.type(text)
        except Exception:  # noqa: BLE001  each parser has errors of its own
            return None

    if action.nargs == 0:
        return "flag"
    if action.choices and all(isinstance(x, str | int) for x in action.choices):
        return "|".join(map(str, action.choices))
    if action.nargs is not None or action.type is None:
        return ""
    if read("abc") is not None or read("[1]") is not None:
        return ""
    if read("4k") is not None:
        return "size"
    found = type(read("3"))
    return found.__name__ if found in (int, float) else ""


def main() -> None:
    """Print all flags of vLLM with their kinds, one flag per line."""
    from vllm.entrypoints.launchers.cli_args import make_arg_parser
    from vllm.utils.argparse_utils import FlexibleArgumentParser

    lines = set()
    for action in make_arg_parser(FlexibleArgumentParser())._actions:
        for flag in action.option_strings:
            if flag.startswith("--") and not flag.startswith("--no-"):
                name = flag.removeprefix("--").replace("-", "_")
                lines.add(f"{name} {_kind(action)}".rstrip())
    lines.discard("help flag")
    sys.stdout.write("\n".join(sorted(lines)) + "\n")


if __name__ == "__main__":
    main()
