"""Tripwires of a tasks file that no check judges."""

import json
from pathlib import Path

from agentgym.evaluate.check import run_tripwire
from agentgym.evaluate.check.examination import Examination
from agentgym.scenarios.registry import get_scenario

TOOL = {"name": "book", "description": "Books.", "parameters": {"type": "object"}}


def test_tripwires_of_a_check_are_skipped_where_there_is_none(tmp_path: Path) -> None:
    tasks = tmp_path / "rooms.jsonl"
    lines = [{"instruction": f"Room {n}?", "tools": [TOOL]} for n in range(16)]
    tasks.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    reference = f"{tasks}?check=none"
    scenario = get_scenario(reference)
    assert not scenario.has_check
    examined = Examination(reference, scenario, 4, 0)
    found = {
        name: run_tripwire(name, examined).status
        for name in ("rewards", "do-nothing", "call-everything", "oracle", "card")
    }
    assert set(found.values()) - {found.pop("card")} == {"skip"}
