"""Verdicts equal those of EvalPlus, on made solutions, good and bad.

``find_zero`` is left out: EvalPlus 0.3.1 accepts no solution of it. Needs evalplus:
``uv run --with evalplus==0.3.1 pytest -m sweep`` of this file.
"""

from pathlib import Path
from typing import Any

import pytest

from agentgym.scenarios.registry import get_scenario
from tests.plugins.bench.code import samples
from tests.plugins.bench.code.test_benchmarks import verdict

pytestmark = [pytest.mark.sweep, pytest.mark.timeout(600)]

MEAN = 'def mean(numbers):\n    """Return the mean, 0 if there is none."""\n'
SETS: dict[str, tuple[dict[str, Any], list[str]]] = {
    "mean": (
        {
            "task_id": "HumanEval/900",
            "prompt": MEAN,
            "entry_point": "mean",
            "canonical_solution": (
                "    return sum(numbers) / len(numbers) if numbers else 0\n"
            ),
            "base_input": [[[1, 2]], [[]], [[5.5]]],
            "plus_input": [[[1e300, 1e300]], [[0.1, 0.2]], [[]], [[-3]]],
            "atol": 0,
        },
        [
            "    return sum(numbers) / max(1, len(numbers))\n",
            "    return sum(numbers) / len(numbers)\n",
            "    return sum(numbers) / len(numbers) + 1e-8 if numbers else 0\n",
            "    return sum(numbers) / len(numbers) + 1e-3 if numbers else 0\n",
            "    return sum(numbers) / len(numbers) if numbers else None\n",
            "    return sum(numbers) / len(numbers) if numbers else 0.0\n",
            "    return sum(numbers) / len(numbers) if numbers else 1e-9\n",
            "    return [sum(numbers) / len(numbers)] if numbers else 0\n",
            "    return float('nan')\n",
            "    raise SystemExit(0)\n",
            "    import os\n    os._exit(0)\n",
            "    return (\n",
        ],
    ),
    "similar_elements": (
        samples.MBPP_PLUS,
        [
            "def similar_elements(a, b):\n    return sorted(set(a) & set(b))\n",
            "def similar_elements(a, b):\n    return list(a)\n",
            "def similar_elements(a, b):\n    return 3\n",
        ],
    ),
    "pairs": (
        {
            "task_id": "Mbpp/63",
            "prompt": '"""\nReturn the largest difference.\n"""\n',
            "entry_point": "pairs",
            "canonical_solution": (
                "def pairs(rows):\n    return max(abs(a - b) for a, b in rows)\n"
            ),
            "base_input": [[[[3, 5], [1, 7]]]],
            "plus_input": [[[[1, 1]]]],
            "atol": 0,
        },
        [
            "def pairs(rows):\n    return max(abs(a - b) for a, b in rows)\n",
            "def pairs(rows):\n    return float(max(abs(a - b) for a, b in rows))\n",
            "def pairs(rows):\n    return len({*rows}) and 6\n",
            "def pairs(rows):\n    return True if len(rows) == 1 else 6\n",
        ],
    ),
}


def _theirs(row: dict[str, Any], code: str) -> bool:
    """Judge with EvalPlus: base inputs, then the further ones."""
    from evalplus.data.mbpp import mbpp_deserialize_inputs
    from evalplus.eval import PASS, untrusted_check

    data = "mbpp" if row["task_id"].startswith("Mbpp") else "humaneval"
    names: dict[str, Any] = {}
    exec(f"{row['prompt']}\n{row['canonical_solution']}", names)
    for key in ("base_input", "plus_input"):
        inputs = row[key]
        if data == "mbpp":
            inputs = mbpp_deserialize_inputs(row["task_id"], inputs)
        expected = [names[row["entry_point"]](*each) for each in inputs]
        found, _ = untrusted_check(
            data,
            f"{row['prompt']}\n{code}",
            inputs,
            row["entry_point"],
            expected=expected,
            atol=row["atol"],
            ref_time=[0.01] * len(inputs),
            fast_check=True,
        )
        if found != PASS:
            return False
    return True


@pytest.mark.parametrize("name", SETS)
def test_verdicts_equal_those_of_evalplus(name: str, tmp_path: Path) -> None:
    pytest.importorskip("evalplus")
    row, codes = SETS[name]
    kind = "mbpp_plus" if row["task_id"].startswith("Mbpp") else "humaneval_plus"
    path = samples.write(tmp_path / "data.jsonl", row)
    scenario = get_scenario(f"{kind}?data={path}")
    try:
        ours = {code: verdict(scenario, code) for code in codes}
    finally:
        scenario.close()
    assert ours == {code: _theirs(row, code) for code in codes}
    assert set(ours.values()) == {True, False}
