"""Run the tests of HumanEval+ and MBPP+, which compare outputs outside the sandbox.

The answer's code and the benchmark's reference solution both run in the sandbox. File
format, time limits and comparison are those of EvalPlus, which publishes these
benchmarks. Each call may take 4 s, or 4 times as long as the reference solution if that
is longer. All calls together may take 60 s.
"""

import ast
import inspect
import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from agentgym.errors import SandboxError
from agentgym.plugins.bench.code import recorded
from agentgym.plugins.bench.code.asserts import COMPLETE, WRITE
from agentgym.plugins.bench.code.problems import BenchmarkProblem, Row, read_lines
from agentgym.sandbox import PythonScript, Sandbox

Restore = Callable[[Any], Any]


def _items(value: Any) -> list[Any]:
    """Return the items of ``value``, each converted to a tuple."""
    return [tuple(item) for item in value]


def _items_below(value: Any) -> list[Any]:
    return [_items(item) for item in value]


def _tuples_of_tuples(value: Any) -> list[Any]:
    return [tuple(_items(item)) for item in value]


def _mixed(value: Any) -> list[Any]:
    return [
        tuple(tuple(x) if isinstance(x, list) else x for x in value[0]),
    ]


def _sets(value: Any) -> list[Any]:
    made = [set(x) if isinstance(x, list) and x else {} for x in value[0]]
    return [made]


def _by_key(value: Any) -> list[Any]:
    return [{key: tuple(item) for key, item in value[0].items()}, *value[1:]]


def _all(value: Any) -> Any:
    return tuple(map(_all, value)) if isinstance(value, list) else value


_BY_IDS: Mapping[Restore, str] = {
    _items: "2 116 132 143 222 261 273 394 399 421 424 429 470 560 579 596 616 630 726 "
    "740 744 809",
    _items_below: "63 64 70 94 120 237 272 299 400 409 417 438 473 614 780",
    lambda value: [_items(value[0]), value[1]]: "75 413 444 753",
    lambda value: [value[0], tuple(value[1])]: "106 750",
    lambda value: [tuple(value[0]), *value[1:]]: "250 307 405 446 617 720 763 808",
    lambda value: [float(value[0]), complex(value[1])]: "124",
    lambda value: [complex(value[0])]: "252",
    _tuples_of_tuples: "259 401 445",
    _mixed: "278",
    _sets: "115",
    _by_key: "722",
    _all: "580 615 791",
}
_RESTORE = {
    int(number): restore for restore, ids in _BY_IDS.items() for number in ids.split()
}


def with_types(task_id: str, inputs: Sequence[Any]) -> list[Any]:
    """Return an MBPP+ problem's inputs with types that JSON lacks, e.g. tuples."""
    number = task_id.rpartition("/")[2]
    restore = _RESTORE.get(int(number)) if number.isdigit() else None
    return [restore(each) for each in inputs] if restore else [*inputs]


_NUMBERS = {"inf": math.inf, "nan": math.nan}
_MOST_TOLERANCE = 0.01


def read_test_program(text: str) -> tuple[str, list[Any], float]:
    """Return a test program's function, its inputs, and its tolerance for floats."""
    try:
        tree = ast.parse(text)
        assigned = next(filter(_assigns_inputs, ast.walk(tree)), ast.Pass())
        value = getattr(assigned, "value", ast.Constant(None))
        inputs = ast.literal_eval(_Constants().visit(value))
    except (SyntaxError, TypeError, RecursionError, MemoryError) as error:
        raise ValueError(f"it cannot be read: {type(error).__name__}") from None
    loops = [n for n in ast.walk(tree) if isinstance(n, ast.For) and _runs_over(n)]
    called = [name for loop in loops for name in _called(loop)]
    if not called or not inputs or not all(isinstance(i, list) for i in inputs):
        raise ValueError("it has no call for each of its inputs")
    numbers = [n for loop in loops for n in _numbers(loop)]
    return called[0], inputs, numbers[-1] if numbers else 0.0


class _Constants(ast.NodeTransformer):
    """Replaces the names ``inf`` and ``nan`` in a syntax tree by their values."""

    # Then `ast.literal_eval` can evaluate the tree.
    def visit_Name(self, node: ast.Name) -> ast.expr:
        return ast.Constant(_NUMBERS[node.id]) if node.id in _NUMBERS else node


def _assigns_inputs(node: ast.AST) -> bool:
    return isinstance(node, ast.Assign) and _is_inputs(node.targets[0])


def _is_inputs(node: ast.AST) -> bool:
    return isinstance(node, ast.Name) and node.id == "inputs"


def _runs_over(loop: ast.For) -> bool:
    return any(map(_is_inputs, ast.walk(loop.iter)))


def _called(loop: ast.For) -> Iterator[str]:
    """Yield the functions, but ``ref_func``, that a loop calls as ``name(*x)``."""
    for node in ast.walk(loop):
        match node:
            case ast.Call(
                func=ast.Name(id=name), args=[ast.Starred(value=ast.Name())]
            ) if name != "ref_func":
                yield name


def _numbers(loop: ast.For) -> Iterator[float]:
    for node in ast.walk(loop):
        match node:
            case ast.Constant(value=int() | float() as value) if (
                not isinstance(value, bool) and 0 <= value <= _MOST_TOLERANCE
            ):
                yield float(value)


HUMANEVAL_SOURCE = (
    "https://github.com/evalplus/humanevalplus_release/releases "
    "(HumanEvalPlus.jsonl.gz), or the data set evalplus/humanevalplus on Hugging Face "
    "as JSON Lines"
)
MBPP_SOURCE = (
    "https://github.com/evalplus/mbppplus_release/releases (MbppPlus.jsonl.gz), or the "
    "data set evalplus/mbppplus on Hugging Face as JSON Lines"
)
Inputs = list[Any]
_WHOLE_S, _LEAST_S, _FACTOR = 60.0, 4.0, 4.0
_RELATIVE = 1e-7
_LEAST_TOLERANCE = 1e-6
_NOT_NONE = frozenset({"check_str", "text_match_three", "text_starta_endb"})
_AS_SETS = frozenset(
    {
        *("similar_elements", "find_char_long", "common_in_nested_lists"),
        *("extract_singly", "larg_nnum", "intersection_array", "find_dissimilar"),
        "Diff",
    }
)
_SCRIPT = """
_code, _name, _inputs, _limits = taken("asked.json")


def _function():
    names = {"__name__": "solution"}
    exec(compile(_code, "solution.py", "exec"), names)
    return lambda arguments: names[_name](*arguments)


record(_function, map(unpacked, _inputs), _limits)
"""


@dataclass
class Outputs:
    """Accepts code if its outputs equal those of a reference solution.

    Attributes:
        inputs: Groups of calls; each call is the list of its arguments, converted by
            :func:`recorded.packed`. A group runs only if the code has passed the
            groups before it.
        tolerance: Absolute tolerance for floats; 0 means EvalPlus' default.
        oracle: The benchmark whose special rules for comparisons apply: "humaneval" or
            "mbpp".
    """

    reference: str
    name: str
    inputs: tuple[Inputs, ...]
    tolerance: float
    oracle: str
    _expected: dict[int, list[tuple[Any, float]]] = field(default_factory=dict)
    """Output and CPU seconds of the reference's calls, by the number of the group."""

    def __call__(self, sandbox: Sandbox, code: str) -> bool:
        """Return whether the code passes all groups of calls."""
        groups = (n for n, inputs in enumerate(self.inputs) if inputs)
        return all(self._passes(sandbox, code, group) for group in groups)

    def _passes(self, sandbox: Sandbox, code: str, group: int) -> bool:
        """Return whether code and reference solution have equal outputs for a group."""
        inputs = self.inputs[group]
        if (expected := self._expected.get(group)) is None:
            limits = [_WHOLE_S] * len(inputs)
            expected = self._run(sandbox, self.reference, inputs, limits, _WHOLE_S)
            if len(expected) != len(inputs):
                raise SandboxError(
                    f"The reference solution of {self.name} does not run in the "
                    "sandbox: its file may need packages that are not in it."
                )
            self._expected[group] = expected
        limits = [max(_LEAST_S, _FACTOR * seconds) for _, seconds in expected]
        whole_s = min(_WHOLE_S, sum(limits)) + 1
        given = self._run(sandbox, code, inputs, limits, whole_s)
        if len(given) != len(expected):
            return False
        tolerance = self.tolerance
        for packed, (out, _), (right, _) in zip(inputs, given, expected, strict=True):
            if tolerance == 0 and _are_floats(right):
                tolerance = _LEAST_TOLERANCE  # It stays changed, as in EvalPlus.
            arguments = recorded.unpacked(packed)
            if not self._equal(arguments, out, right, tolerance):
                return False
        return True

    def _run(
        self,
        sandbox: Sandbox,
        code: str,
        inputs: Inputs,
        limits: Sequence[float],
        whole_s: float,
    ) -> list[tuple[Any, float]]:
        """Run code in the sandbox; return the output and CPU seconds of each call.

        The list is too short if a call failed.
        """
        asked = json.dumps([code, self.name, inputs, limits])
        files = {"judge.py": inspect.getsource(recorded) + _SCRIPT, "asked.json": asked}
        result = sandbox.run_sync(
            files, PythonScript("judge.py"), timeout_s=whole_s
        ).checked()
        found = []
        for line in result.stdout.split("\n")[:-1] if result.ok else ():
            try:
                packed, seconds = json.loads(line)
                found.append((recorded.unpacked(packed), float(seconds)))
            except (ValueError, TypeError, KeyError, RecursionError):
                return []
        return found

    def _equal(self, arguments: Any, out: Any, right: Any, tolerance: float) -> bool:
        """Return whether ``out`` equals ``right``, compared as EvalPlus does."""
        try:
            found = self._by_oracle(arguments, out, right)
            return _close(out, right, tolerance) if found is None else found
        except (TypeError, ValueError, OverflowError, ArithmeticError):
            return False

    def _by_oracle(self, arguments: Any, out: Any, right: Any) -> bool | None:
        """Compare outputs by EvalPlus' rules for single problems."""
        name = self.name
        if self.oracle == "humaneval":
            if name != "find_zero":
                return None
            terms = [c * math.pow(out, n) for n, c in enumerate(arguments[0])]
            return bool(abs(sum(terms)) <= self.tolerance)
        if name == "are_equivalent":
            return True
        if name in _AS_SETS:
            return bool(set(out) == set(right))
        if name in _NOT_NONE:
            return bool(
                out == right if type(out) is bool else right == (out is not None)
            )
        if out == right:
            return True
        if name == "sum_div":
            return bool(out == 0)
        if name == "surface_Area":
            base, height = arguments
            slant = math.sqrt((base / 2) ** 2 + height**2)
            return bool(abs(out - round(base**2 + 2 * base * slant)) <= self.tolerance)
        if name == "digit_distance_nums":
            width = max(len(str(number)) for number in arguments)
            first, second = (str(number).zfill(width) for number in arguments)
            pairs = zip(first, second, strict=True)
            return bool(out == sum(abs(int(a) - int(b)) for a, b in pairs))
        return None


def _close(out: Any, right: Any, tolerance: float) -> bool:
    if out == right:
        return True
    if tolerance == 0 or type(out) is not type(right):
        return False
    return _near(out, right, tolerance)


def _near(out: Any, right: Any, tolerance: float) -> bool:
    if isinstance(right, list | tuple):
        return len(out) == len(right) and all(
            _near(*pair, tolerance) for pair in zip(out, right, strict=True)
        )
    return bool(out == right or abs(out - right) <= tolerance + _RELATIVE * abs(right))


def _are_floats(value: Any) -> bool:
    if isinstance(value, list | tuple) and value:
        return all(isinstance(item, float) for item in value)
    return isinstance(value, float)


def read_humaneval_plus(data: str) -> Iterator[BenchmarkProblem]:
    """Yield the problems of HumanEval+."""
    return _read(data, "humaneval", "HumanEval+", HUMANEVAL_SOURCE)


def read_mbpp_plus(data: str) -> Iterator[BenchmarkProblem]:
    """Yield the problems of MBPP+."""
    return _read(data, "mbpp", "MBPP+", MBPP_SOURCE)


def _read(
    data: str, oracle: str, title: str, source: str
) -> Iterator[BenchmarkProblem]:
    for row in read_lines(data, title, source):
        on_hub = row.get("base_input") is None and row.get("test") is not None
        yield (_of_hub if on_hub else _of_release)(row, oracle)


def _of_release(row: Row, oracle: str) -> BenchmarkProblem:
    """Convert a line of EvalPlus' data file, with two fields of inputs."""
    given = [row.field(key, list) for key in ("base_input", "plus_input")]
    atol = row.get("atol", 0)
    if not isinstance(atol, int | float) or not given[0]:
        raise row.error("atol must be a number, and inputs be given")
    prompt, solution = row.field("prompt"), row.field("canonical_solution")
    if oracle == "mbpp":
        given = [with_types(row.field("task_id"), each) for each in given]
        solution = f"\n{solution}"
    return _completion(row, oracle, prompt + solution, given, float(atol))


def _of_hub(row: Row, oracle: str) -> BenchmarkProblem:
    """Convert a line of the hub's data set, with a test program, to a problem."""
    try:
        name, inputs, tolerance = read_test_program(row.field("test"))
    except ValueError as error:
        problem = f"its field 'test' is not a test program of EvalPlus: {error}"
        raise row.error(problem) from None
    prompt = row.field("prompt")
    if oracle == "humaneval":
        reference = prompt + row.field("canonical_solution")
        return _completion(row, oracle, reference, [inputs], tolerance)
    shown = "\n".join(row.texts("test_list"))
    given = (list(map(recorded.packed, inputs)),)
    return BenchmarkProblem(
        id=f"Mbpp/{row.field('task_id', int)}",
        family="mbpp_plus",
        instruction=WRITE.format(request=prompt, tests=shown),
        judge=Outputs(row.field("code"), name, given, tolerance, oracle),
    )


def _completion(
    row: Row, oracle: str, reference: str, given: Sequence[Inputs], tolerance: float
) -> BenchmarkProblem:
    """Return a problem whose prompt is the beginning of the code."""
    prompt, name = row.field("prompt"), row.field("entry_point")
    inputs = tuple(list(map(recorded.packed, each)) for each in given)
    return BenchmarkProblem(
        id=row.field("task_id"),
        family=f"{oracle}_plus",
        instruction=COMPLETE.format(prompt=prompt),
        prefix=prompt,
        is_python=True,
        entry_point=name,
        judge=Outputs(reference, name, inputs, tolerance, oracle),
    )
