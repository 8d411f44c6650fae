"""Small files of our own in the formats of the benchmarks."""

import base64
import json
import pickle
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

ADD = (
    "from typing import List\n\n\ndef add_up(numbers: List[float]) -> float:\n"
    '    """Return the sum of numbers.\n    >>> add_up([1.0, 2.0])\n    3.0\n    """\n'
)
HUMANEVAL = {
    "task_id": "Sample/0",
    "prompt": ADD,
    "entry_point": "add_up",
    "canonical_solution": "    return sum(numbers)\n",
    "test": (
        "METADATA = {}\n\n\ndef check(candidate):\n"
        "    assert candidate([1.0, 2.0]) == 3.0\n    assert candidate([]) == 0\n"
    ),
}
HUMANEVAL_PLUS = {
    **HUMANEVAL,
    "contract": "",
    "base_input": [[[1.0, 2.0]], [[]]],
    "plus_input": [[[0.1, 0.2, 0.3]], [[-1.0]]],
    "atol": 0,
}
MBPP = {
    "task_id": 602,
    "text": "Write a function to count letters.",
    "code": "def count(text):\n    return len(text)",
    "test_list": ["assert count('ab') == 2", "assert count('') == 0"],
    "test_setup_code": "",
    "challenge_test_list": [],
}
MBPP_SANITIZED = {
    "source_file": "sample.ipynb",
    "task_id": 20,
    "prompt": "Write a function to halve a number.",
    "code": "def halve(n):\n    return n / 2",
    "test_imports": ["import math"],
    "test_list": ["assert math.isclose(halve(3), 1.5)"],
}
MBPP_PLUS = {
    "task_id": "Mbpp/2",
    "prompt": '"""\nWrite a function to find what two tuples share.\n"""\n',
    "entry_point": "similar_elements",
    "canonical_solution": (
        "def similar_elements(first, second):\n"
        "    return tuple(set(first) & set(second))\n"
    ),
    "contract": "",
    "base_input": [[[3, 4, 5], [5, 4, 7]]],
    "plus_input": [[[1], [2]]],
    "atol": 0,
}
_LOOP = "for i, (inp, exp) in enumerate(zip(inputs, results)):"
HUMANEVAL_PLUS_ON_HUB = {
    **HUMANEVAL,
    "test": (
        "import numpy as np\n\n\ndef assertion(out, exp, atol):\n"
        "    assert np.allclose(out, exp, atol=atol)\n\n\ndef check(candidate):\n"
        "    inputs = [[[1.0, 2.0]], [[]], [[inf, 1.0]]]\n    results = [3.0, 0, inf]\n"
        f"    {_LOOP}\n        assertion(candidate(*inp), exp, 0)\n"
    ),
}
MBPP_PLUS_ON_HUB = {
    "task_id": 2,
    "code": MBPP_PLUS["canonical_solution"],
    "prompt": "Write a function to find what two tuples share.",
    "source_file": "sample.ipynb",
    "test_imports": [],
    "test_list": ["assert set(similar_elements((3, 4), (4,))) == {4}"],
    "test": (
        "import numpy as np\n\n\ndef assertion(out, exp, atol):\n"
        "    assert out == exp\n\n\ninputs = [[(3, 4, 5), (5, 4, 7)], [(1,), (2,)]]\n"
        f"results = [(4, 5), ()]\n{_LOOP}\n"
        "    assertion(set(similar_elements(*inp)), set(exp), 0)\n"
    ),
}
_MULTIPL_E = {
    "prompt_terminology": "verbatim",
    "doctests": "transform",
    "original": "sample.py",
}
MULTIPL_E = {
    "js": {
        "name": "HumanEval_0_add_up",
        "language": "js",
        "prompt": "//Return the sum.\nfunction add_up(numbers){\n",
        "tests": (
            "const assert = require('node:assert');\n\n\nfunction test() {\n"
            "  let candidate = add_up;\n  assert.deepEqual(candidate([1, 2]), 3);\n"
            "}\n\ntest();"
        ),
        "stop_tokens": ["\nfunction ", "\n/*", "\n//", "\nconsole.log"],
        **_MULTIPL_E,
    },
    "go": {
        "name": "HumanEval_0_add_up",
        "language": "go_test.go",
        "prompt": (
            'package add_up_test\n\nimport (\n    "testing"\n    "fmt"\n)\n\n'
            "// Return the sum.\nfunc add_up(numbers []int) int {\n"
        ),
        "tests": (
            "func TestAdd_Up(t *testing.T) {\n  candidate := add_up\n"
            '\tif fmt.Sprintf("%v", candidate([]int{1, 2})) != "3" {\n'
            '\t\tt.Errorf("wrong")\n\t}\n}\n'
        ),
        "stop_tokens": ["\nfunc", "struct", "\n// "],
        **_MULTIPL_E,
    },
    "rs": {
        "name": "HumanEval_0_add_up",
        "language": "rs",
        "prompt": "/// Return the sum.\nfn add_up(numbers: Vec<isize>) -> isize {\n",
        "tests": (
            "}\n\nfn main() {\n    let candidate = add_up;\n"
            "    assert_eq!(candidate(vec![1, 2]), 3);\n}\n"
        ),
        "stop_tokens": ["\n}"],
        **_MULTIPL_E,
    },
}
SUMS = [{"input": "1 2\n", "output": "3\n", "testtype": "stdin"}]
HIDDEN = [
    {"input": "2 2\n", "output": "4\n", "testtype": "stdin"},
    {"input": "0 0.5\n", "output": "0.50\n", "testtype": "stdin"},
]
CALLS = [
    {"input": "[1, 2]\n1", "output": "[2, 3]", "testtype": "functional"},
    {"input": "[]\n1", "output": "[]", "testtype": "functional"},
]


def hidden(tests: Sequence[Mapping[str, Any]]) -> str:
    """Return tests as the data set hides them."""
    return base64.b64encode(zlib.compress(pickle.dumps(json.dumps([*tests])))).decode()


def contest(number: str, date: str, **other: Any) -> dict[str, Any]:
    """Return a line of LiveCodeBench."""
    return {
        "question_title": "Sums",
        "question_content": "Print the sum of two numbers.",
        "platform": "sample",
        "question_id": number,
        "contest_id": "c",
        "contest_date": f"{date}T00:00:00",
        "starter_code": "",
        "difficulty": "easy",
        "public_test_cases": json.dumps(SUMS),
        "private_test_cases": hidden(HIDDEN),
        "metadata": "{}",
        **other,
    }


def write(path: Path, *rows: Mapping[str, Any]) -> Path:
    """Write a JSON Lines file."""
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    return path
