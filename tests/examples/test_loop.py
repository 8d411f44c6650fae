"""examples/loop.py: the algorithm in one file, by the same parts as `train`."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "examples" / "loop.py"


def test_it_can_be_read_on_a_few_pages() -> None:
    assert len(SCRIPT.read_text().splitlines()) <= 300


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_step_moves_the_policy_and_held_out_tasks_are_measured() -> None:
    words = [sys.executable, str(SCRIPT), "1", "coding", "native"]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    step = re.search(r"step 1: .+, (\d+) trained tokens, KL (0\.\d+)", done.stdout)
    assert step is not None, done.stdout
    assert int(step[1]) > 500
    assert float(step[2]) > 0
    shares = re.findall(r"solved \w+ training: (\d+)% \[", done.stdout)
    assert all(30 < int(share) < 90 for share in shares)
    assert len(shares) == 2
