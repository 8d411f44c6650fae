"""Starter files: requests that are made of the schemas of tools."""

import json

import pytest

from agentgym.core.tools import Tool, ToolSpec
from agentgym.scenarios.schemas import model_of_schema
from agentgym.scenarios.tool_tasks.starter import starter


@pytest.mark.parametrize(
    "text",
    [
        "<summary>List the tables.</summary>\n<returns>\nText.\n</returns>",
        "\n    List the tables.\n\n    Args: none",
    ],
)
def test_a_request_has_the_first_sentence_of_a_description(text: str) -> None:
    spec = ToolSpec("list_tables", text, model_of_schema("list_tables", {}))
    found = starter([Tool(spec, lambda: "")]).splitlines()
    lines = [line for line in found if not line.startswith("#")]
    assert json.loads(lines[0])["instruction"].startswith("List the tables.")
    assert not any("<" in line for line in lines)
