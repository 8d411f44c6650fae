"""Records of public data sets of function calling are lines of a tasks file."""

import json
from pathlib import Path
from typing import Any

import pytest

from agentgym import Split
from agentgym.core.background import in_background
from agentgym.errors import UsageError
from agentgym.evaluate.baselines import Call, attempt
from agentgym.scenarios.registry import get_scenario
from agentgym.scenarios.tool_tasks.task_file import carries_tools, read_task_lines

CITIES = ("Lima", "Oslo", "Cairo", "Quito", "Perth", "Delhi", "Turin", "Dakar")


def xlam(number: int = 0) -> dict[str, Any]:
    """A record as ``xlam-function-calling-60k`` has them: lists as JSON in texts."""
    city = CITIES[number % len(CITIES)]
    tools = [
        {
            "name": "rain.forecast",
            "description": "Forecast the rain of a city.",
            "parameters": {
                "city": {"description": "Its name.", "type": "str"},
                "days": {"description": "How many.", "type": "int, optional"},
                "zone": {"description": "Of time.", "type": "str", "default": "UTC"},
            },
        },
        {"name": "tides", "description": "", "parameters": {"port": {"type": "str"}}},
    ]
    answers = [
        {"name": "rain.forecast", "arguments": {"city": city, "days": 2 + number}},
        {"name": "rain.forecast", "arguments": {"city": city}},
    ]
    return {
        "id": number,
        "query": f"Rain in {city} in {2 + number} days, and now?",
        "answers": json.dumps(answers),
        "tools": json.dumps(tools),
    }


def toolace(number: int = 0) -> dict[str, Any]:
    """A record as ToolACE has them: names with spaces, calls as Python writes them."""
    city = CITIES[number % len(CITIES)]
    functions = [
        {
            "name": "Market Trends API",
            "description": "List what sells.",
            "parameters": {
                "type": "dict",
                "properties": {
                    "place": {"type": "string", "description": "A city."},
                    "top": {"type": "int", "description": "How many."},
                    "goods": {"type": "list", "items": {"type": "string"}},
                },
                "required": ["place"],
            },
            "required": None,
        }
    ]
    return {
        "system": "You are an expert in composing functions. Here is a list of "
        f"functions in JSON format that you can invoke:\n{json.dumps(functions)}. \n"
        "Put it in the format of [func1(params_name=params_value), func2(params)]",
        "conversations": [
            {"from": "user", "value": "Which goods sell well?"},
            {"from": "assistant", "value": "In which city?"},
            {"from": "user", "value": f"In {city}, the first {number + 1}."},
            {
                "from": "assistant",
                "value": f'[Market Trends API(place="{city}", top={number + 1}, '
                'goods=["tea", "it\'s (all) = fine"]), Market Trends API(place="all")]',
            },
            {
                "from": "tool",
                "value": '[{"name": "Market Trends API", "results": {"tea": 1}}, '
                '{"name": "Market Trends API", "results": {"tea": 2}}]',
            },
            {"from": "assistant", "value": "Tea."},
            {"from": "user", "value": "And elsewhere?"},
            {"from": "assistant", "value": '[Market Trends API(place="Rome")]'},
        ],
    }


def hermes(number: int = 0, *, listed: bool = True) -> dict[str, Any]:
    """A record as ``hermes-function-calling-v1`` has them, calls in marks."""
    city = CITIES[number % len(CITIES)]
    tools = [
        {
            "type": "function",
            "function": {
                "name": "find_home",
                "description": "Find a flat.",
                "parameters": {
                    "type": "object",
                    "properties": {"city": {"type": "string"}, "max": {}},
                    "required": ["city"],
                },
            },
        }
    ]
    record = {
        "id": f"home-{number}",
        "conversations": [
            {
                "from": "system",
                "value": "You are a function calling AI model. Functions are within "
                f"<tools> </tools> tags. <tools>\n{tools}\n</tools>\nFor each call "
                "return JSON within <tool_call> </tool_call> tags.",
            },
            {"from": "human", "value": f"A flat in {city}, {number + 1},000 at most."},
            {
                "from": "gpt",
                "value": "<think>\nA search.\n</think>\n<tool_call>\n"
                f"{{'arguments': {{'city': '{city}', 'max': {number + 1}000}}, "
                "'name': 'find_home'}\n</tool_call>",
            },
            {
                "from": "tool",
                "value": '<tool_response>\n{"name": "find_home", "content": '
                '{"flats": 3}}\n</tool_response>',
            },
            {"from": "gpt", "value": "There are three."},
        ],
    }
    if listed:
        record["tools"] = json.dumps(tools)
    return record


def write(path: Path, records: list[dict[str, Any]]) -> Path:
    path.write_text("".join(f"{json.dumps(record)}\n" for record in records))
    return path


def test_xlam(tmp_path: Path) -> None:
    path = write(tmp_path / "x.jsonl", [xlam()])
    [line] = read_task_lines(path, {}, checked=False)
    assert carries_tools(path)
    assert (line.id, line.ordered) == ("0", False)
    assert line.instruction == "Rain in Lima in 2 days, and now?"
    assert list(line.tools) == ["rain_forecast", "tides"]
    assert line.tools["rain_forecast"].parameters == {
        "type": "object",
        "additionalProperties": False,
        "properties": {
            "city": {"type": "string", "description": "Its name."},
            "days": {"type": "integer", "description": "How many."},
            "zone": {"type": "string", "description": "Of time."},
        },
        "required": ["city"],
    }
    calls = [(need.tool, need.arguments) for need in line.expect]
    assert calls == [
        ("rain_forecast", {"city": "Lima", "days": 2}),
        ("rain_forecast", {"city": "Lima"}),
    ]


def test_toolace(tmp_path: Path) -> None:
    """The first request that needs calls, with all that the user has said so far."""
    path = write(tmp_path / "t.jsonl", [toolace()])
    [line] = read_task_lines(path, {}, checked=False)
    assert carries_tools(path)
    assert line.instruction == "Which goods sell well?\n\nIn Lima, the first 1."
    [tool] = line.tools.values()
    assert (tool.name, tool.parameters["required"]) == ("Market_Trends_API", ["place"])
    assert tool.parameters["properties"]["goods"] == {"type": "array"}
    first, second = line.expect
    goods = ["tea", "it's (all) = fine"]
    assert first.arguments == {"place": "Lima", "top": 1, "goods": goods}
    assert second.arguments == {"place": "all"}
    assert [answer.text for answer in line.answers] == ['{"tea": 1}', '{"tea": 2}']


@pytest.mark.parametrize("listed", [True, False])
def test_hermes(tmp_path: Path, listed: bool) -> None:
    path = write(tmp_path / "h.jsonl", [hermes(listed=listed)])
    [line] = read_task_lines(path, {}, checked=False)
    assert carries_tools(path)
    assert (line.id, line.instruction) == ("home-0", "A flat in Lima, 1,000 at most.")
    assert list(line.tools) == ["find_home"]
    [need] = line.expect
    assert (need.tool, need.arguments) == ("find_home", {"city": "Lima", "max": 1000})
    assert [answer.text for answer in line.answers] == ['{"flats": 3}']


def test_a_type_that_the_records_own_calls_do_not_fit_is_left_open(
    tmp_path: Path,
) -> None:
    record = xlam()
    record["answers"] = [{"name": "tides", "arguments": {"port": 7}}]
    [line] = read_task_lines(write(tmp_path / "x.jsonl", [record]), {}, checked=False)
    assert line.tools["tides"].parameters["properties"] == {"port": {}}
    record["answers"] = [{"name": "tides", "arguments": {}}]
    [line] = read_task_lines(write(tmp_path / "x.jsonl", [record]), {}, checked=False)
    assert line.tools["tides"].parameters["required"] == []


def test_records_of_all_kinds_are_tasks_with_their_own_tools(tmp_path: Path) -> None:
    records = [make(n) for n in range(8) for make in (xlam, toolace, hermes)]
    scenario = get_scenario(str(write(tmp_path / "all.jsonl", records)))
    every = [task for split in Split for task in scenario.tasks(split, 0, 99)]
    task = next(task for task in every if task.id == "home-0")
    right = Call("find_home", {"city": "Lima", "max": 1000})
    played = in_background(attempt(scenario, task, [right]))
    assert played.success
    assert played.get_tool_calls()[0].result == '{"flats": 3}'
    wrong = Call("find_home", {"city": "Oslo", "max": 1000})
    assert not in_background(attempt(scenario, task, [wrong])).success


def _without_call(record: dict[str, Any]) -> dict[str, Any]:
    del record["conversations"][2:]
    return record


@pytest.mark.parametrize(
    ("record", "said"),
    [
        ({**xlam(), "answers": "[]"}, "this xLAM record calls no function"),
        ({**xlam(), "answers": "no"}, '"no" is neither JSON nor a value of Python'),
        ({**xlam(), "query": 3}, "query: Input should be a valid string"),
        ({**xlam(), "tools": "[3]"}, "this xLAM record is malformed: tools"),
        ({**xlam(), "answers": '[{"name": "f"}]'}, 'no tool is named "f"'),
        ({**xlam(), "tools": [{"name": "f", "parameters": [1]}]}, "the parameters are"),
        (_without_call(hermes()), "this Hermes record calls no function"),
        ({**hermes(), "conversations": [3]}, "conversations record is malformed"),
        ({**toolace(), "system": "Be nice."}, "neither `tools` (as Hermes) nor a list"),
    ],
)
def test_a_record_that_is_not_one_is_refused_in_a_sentence(
    tmp_path: Path, record: dict[str, Any], said: str
) -> None:
    path = write(tmp_path / "broken.jsonl", [hermes(), record])
    with pytest.raises(UsageError) as refused:
        read_task_lines(path, {}, checked=False)
    assert "line 2: " in str(refused.value)
    assert "line 1: " not in str(refused.value)
    assert said in str(refused.value)
