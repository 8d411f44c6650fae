"""CPU time and memory beside those of a reference solution."""

import pytest

from agentgym.errors import ScenarioError
from agentgym.packs.kit.code_rewards import Efficiency, SubmittedCode
from agentgym.sandbox import Sandbox

FAST = """\
def pairs(xs, wanted):
    seen = set()
    count = 0
    for x in xs:
        count += wanted - x in seen
        seen.add(x)
    return count
"""
SLOW = """\
def pairs(xs, wanted):
    return sum(wanted - x in xs[:i] for i, x in enumerate(xs))
"""
HUNGRY = FAST.replace("    seen", "    table = [0] * 30_000_000\n    seen", 1)
SIMILAR = """\
def pairs(xs, wanted):
    seen, count = set(), 0
    for x in xs:
        if wanted - x in seen:
            count = count + 1
        seen |= {x}
    return count
"""
WRONG = "def pairs(xs, wanted):\n    return 0\n"
PART = Efficiency({"m.py": ["pairs(list(range(6_000)), 6_000)"]}, {"m.py": FAST})


def share(sandbox: Sandbox, text: str) -> float:
    return PART.share(SubmittedCode(files={"m.py": text}, sandbox=sandbox))


def test_the_reference_and_code_of_its_kind_earn_the_whole_part(
    sandbox: Sandbox,
) -> None:
    assert share(sandbox, FAST) == 1.0
    assert share(sandbox, SIMILAR) == 1.0


@pytest.mark.slow
def test_a_worse_algorithm_and_wasted_memory_cost(sandbox: Sandbox) -> None:
    assert share(sandbox, SLOW) == 0.5  # All of the time, none of the memory.
    assert share(sandbox, HUNGRY) <= 0.25


@pytest.mark.parametrize(
    "text", [WRONG, "def pairs(", "def pairs(xs, wanted):\n    raise SystemExit(0)\n"]
)
def test_other_values_earn_nothing_however_fast(sandbox: Sandbox, text: str) -> None:
    assert share(sandbox, text) == 0.0


@pytest.mark.slow
def test_a_program_that_claims_to_be_fast_is_measured_from_outside(
    sandbox: Sandbox,
) -> None:
    forged = "import time\n\ntime.process_time = lambda: 0.0\n\n\n" + SLOW
    assert share(sandbox, forged) == 0.5


def test_a_program_that_fails_in_a_later_run_earns_nothing(sandbox: Sandbox) -> None:
    again = "if '# 1' in open('_workload.py').read():\n    raise SystemExit(0)\n\n\n"
    right, given = PART.measure({"m.py": again + SLOW}, sandbox, rounds=3)
    assert (bool(right.values), given.values) == (True, "")
    assert share(sandbox, again + SLOW) == 0.0


def test_a_workload_that_cannot_be_used_is_refused(sandbox: Sandbox) -> None:
    with pytest.raises(ScenarioError, match="needs a workload"):
        Efficiency({}, {"m.py": FAST})
    with pytest.raises(ScenarioError, match="is not an expression"):
        Efficiency({"m.py": ["x ="]}, {"m.py": FAST})
    with pytest.raises(ScenarioError, match="for Python only"):
        Efficiency({"m.js": ["f()"]}, {"m.js": ""})
    broken = Efficiency({"m.py": ["missing()"]}, {"m.py": FAST})
    with pytest.raises(ScenarioError, match="The reference solution fails"):
        broken.share(SubmittedCode(files={"m.py": FAST}, sandbox=sandbox))
