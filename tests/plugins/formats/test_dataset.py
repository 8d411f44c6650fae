"""Datasets of messages and tools on disk, as tasks."""

import json
from pathlib import Path
from typing import Any

import pytest

from agentgym.errors import UsageError
from agentgym.plugins.formats.dataset import is_dataset, rows
from agentgym.plugins.logs import from_logs
from tests.plugins.formats.test_atif import PARAMETERS, TOOL

pyarrow = pytest.importorskip("pyarrow")


def conversation(path: str) -> dict[str, Any]:
    function = {"name": "read", "arguments": json.dumps({"path": path})}
    call = {"id": "c1", "type": "function", "function": function}
    return {
        "messages": [
            {"role": "user", "content": f"Read {path}."},
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": "c1", "content": "text"},
        ],
        "tools": [TOOL],
    }


RECORDS = [conversation("a"), conversation("b")]
EXPECTED = [
    {
        "instruction": f"Read {path}.",
        "expect": [{"tool": "read", "args": {"path": path}, "answer": "text"}],
    }
    for path in "ab"
]


def tasks(path: Path) -> list[dict[str, Any]]:
    found = from_logs(path)
    lines = [json.loads(line) for line in found.text.splitlines() if line[0] == "{"]
    for line in lines:
        [tool] = line.pop("tools")
        assert tool["function"]["parameters"]["properties"] == PARAMETERS["properties"]
    return lines


def test_tasks_are_made_of_parquet(tmp_path: Path) -> None:
    from pyarrow import parquet

    table = pyarrow.Table.from_pylist(RECORDS)
    parquet.write_table(table, tmp_path / "x.parquet")
    assert tasks(tmp_path / "x.parquet") == EXPECTED
    assert tasks(tmp_path) == EXPECTED


@pytest.mark.slow
def test_tasks_are_made_of_a_dataset_of_hugging_face(tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets")
    made = datasets.Dataset.from_list(RECORDS)
    made.save_to_disk(tmp_path / "one")
    datasets.DatasetDict({"train": made}).save_to_disk(tmp_path / "many")
    assert tasks(tmp_path / "one") == tasks(tmp_path / "many") == EXPECTED


def test_what_is_no_dataset_is_named(tmp_path: Path) -> None:
    assert not is_dataset(tmp_path / "x.jsonl")
    with pytest.raises(UsageError, match=r"no \.arrow and no \.parquet file"):
        list(rows(tmp_path))
    (tmp_path / "x.parquet").write_text("text")
    with pytest.raises(UsageError, match=r"x\.parquet cannot be read"):
        list(rows(tmp_path / "x.parquet"))
