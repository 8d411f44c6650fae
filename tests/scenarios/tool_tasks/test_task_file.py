"""Tasks files: what they may say, and what is refused, with the line's number."""

import json
from pathlib import Path
from typing import Any

import pytest

from agentgym import Scenario, Split
from agentgym.errors import UsageError
from agentgym.scenarios.tool_tasks.scenario import ToolScenario
from agentgym.scenarios.tool_tasks.splitting import LEAST
from tests.cli.conftest import Command, agentgym
from tests.scenarios.tool_tasks.shop import CUSTOMERS, lines, write

__all__ = ["agentgym"]

TRACK = {"tool": "track_order", "args": {"order_id": 7}}
GOOD = {"instruction": "Where is 7?", "expect": [TRACK]}


def bad_schema(part: dict[str, str]) -> dict[str, Any]:
    return {"name": "f", "parameters": {"type": "object", "properties": {"x": part}}}


def load(path: Path, **options: Any) -> Scenario:
    return Scenario.from_tools("shop_tools:TOOLS", tasks=path, **options)


def expecting(**args: Any) -> dict[str, Any]:
    return {**GOOD, "expect": [{"tool": "track_order", "args": args}]}


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("{oops", "line 2: it is not JSON"),
        ('{"n": ' + "7" * 5000 + "}", "line 2: it has a number of too many digits"),
        ("[1]", "line 2: it is [1], not an object"),
        ('{"instruction": "a", "instruction": "b"}', "stands in it twice"),
        ({**GOOD, "instruction": "\ud800"}, "JSON cannot hold"),
        ('{"expect": []}', "instruction: Field required"),
        ('{"instruction": "a"}', "doing nothing would be paid"),
        ({**GOOD, "expct": []}, "has 'expct'; did you mean 'expect'?"),
        ({**GOOD, "expect": TRACK}, "expect: Input should be a valid list"),
        ({**GOOD, "expect": ["track_order"]}, 'expect[0] is "track_order"'),
        ({**GOOD, "expect": [{"tool": "trak_order"}]}, "Did you mean 'track_order'?"),
        ({**GOOD, "expect": [{"tool": "transfer_to_desk"}]}, "If it hands over"),
        ({**GOOD, "expect": [{**TRACK, "arg": 1}]}, "expect[0] has 'arg'"),
        (expecting(), "order_id: Field required"),
        (expecting(order_id="x"), "not arguments of 'track_order': order_id: Input"),
        (
            expecting(order=7),
            "; did you mean 'order_id', not 'order'?",
        ),
        (expecting(order_id={"one_of": []}), "one_of is []"),
        (expecting(order_id={"one_of": [1, "x"]}), "order_id: Input should be a valid"),
        (expecting(order_id={"one_of": [*range(65)]}), "more than 64"),
        ({**GOOD, "expect": [{"any": []}]}, "any names no call"),
        (
            {**GOOD, "expect": [{"any": [TRACK, {"tool": "x"}]}]},
            "expect[0].any[1]",
        ),
        ({**GOOD, "tools": []}, "tools: List should have at least 1 item"),
        ({**GOOD, "tools": [7]}, 'line 2: tools[0]: it is not {"type": "function"'),
        ({**GOOD, "tools": [{"name": "a b"}]}, "its name is 'a b': use letters"),
        (
            {**GOOD, "tools": [bad_schema({"type": "dict"})]},
            "parameters of 'f' are not a JSON schema: properties.x.type: 'dict' is not",
        ),
        ({**GOOD, "tools": [{"name": "f"}] * 2}, "tools[1]: two tools are named 'f'"),
        ({**GOOD, "ordered": "yes"}, 'valid boolean (it is "yes")'),
        ({**GOOD, "forbid": ["refnd"]}, "Did you mean 'refund'?"),
        ({**GOOD, "forbid": ["track_order"]}, "both expected and forbidden"),
        ({**GOOD, "split": "dev"}, "split: Input should be 'train', 'validation'"),
        ({**GOOD, "id": "line-1"}, "line 1 has the id 'line-1'"),
        ({**GOOD, "answers": [TRACK]}, "answers[0] has no `answer`"),
        ({**GOOD, "files": {"../x": "y"}}, "not a path below the task's folder"),
    ],
)
def test_broken_lines_are_refused_with_their_number(
    shop: Path, line: Any, told: str
) -> None:
    text = line if isinstance(line, str) else json.dumps(line)
    shop.write_text(f"{json.dumps(lines()[0])}\n{text}\n")
    with pytest.raises(UsageError) as error:
        load(shop)
    assert "line 2: " in str(error.value)
    assert told in str(error.value)


def test_all_broken_lines_are_named_at_once(shop: Path) -> None:
    shop.write_text("\n".join(" " * count + "{" for count in range(7)))
    with pytest.raises(UsageError, match="line 1: (?s:.*)line 5: (?s:.*)and 2 more"):
        load(shop)


def test_lines_with_the_same_fault_are_named_together(shop: Path) -> None:
    call = {"name": "track_order", "arguments": {"order_id": 1}}
    write(shop, [{"instruction": f"Where is {n}?", "expect": [call]} for n in "abc"])
    told = r"line 1 and 2 more: expect\[0\] has 'name'; did you mean 'tool'\?"
    with pytest.raises(UsageError, match=told):
        load(shop)


def test_a_file_that_has_no_tasks_or_no_text_is_refused(shop: Path) -> None:
    shop.write_text("# only a comment\n")
    with pytest.raises(UsageError, match="has no tasks: write one a line"):
        load(shop)
    with pytest.raises(UsageError, match=r"Cannot read .*none.jsonl: No such file"):
        load(shop.with_name("none.jsonl"))
    shop.write_bytes(b"\xff\xfe")
    with pytest.raises(UsageError, match="not a text in UTF-8"):
        load(shop)


def test_comments_empty_lines_and_a_byte_order_mark_are_skipped(shop: Path) -> None:
    shop.write_text("\ufeff# mine\n\n" + shop.read_text())
    ids = {task.id for task in load(shop).tasks(Split.TRAIN, 0, 99)}
    assert ids <= {f"line-{number}" for number in range(3, 33)}


def test_too_few_tasks_and_requests_too_alike_are_refused(shop: Path) -> None:
    write(shop, lines()[:11])
    with pytest.raises(UsageError, match=r"There are 11 tasks; at least 12 are needed"):
        load(shop)
    write(shop, [{**GOOD, "id": number} for number in range(20)])
    with pytest.raises(UsageError, match="too few or too alike to be split"):
        load(shop)


@pytest.mark.parametrize("order", [0, 5])
def test_twelve_different_lines_over_four_tools_are_enough(
    tmp_path: Path, order: int
) -> None:
    tools = ["open_door", "close_door", "call_lift", "ring_bell"]
    made = [
        {
            "instruction": f"{tool.replace('_', ' ')} on floor {floor} {what}",
            "expect": [{"tool": tool, "args": {"floor": floor, "what": what}}],
            "tools": [_tool(name) for name in tools],
        }
        for tool in tools
        for floor, what in (("eleven", "now"), ("nine", "later"), ("two", "at noon"))
    ]
    made = made[order:] + made[:order]
    splits = ToolScenario([], write(tmp_path / "doors.jsonl", made))
    sizes = [len(splits.lines(split)) for split in LEAST]
    assert sum(sizes) == 12
    assert all(size >= least for size, least in zip(sizes, LEAST.values(), strict=True))


def _tool(name: str) -> dict[str, Any]:
    properties = {key: {"type": "string"} for key in ("floor", "what")}
    schema = {"type": "object", "properties": properties, "required": [*properties]}
    function = {"name": name, "description": "Do it.", "parameters": schema}
    return {"type": "function", "function": function}


def test_the_same_request_in_two_splits_is_refused(shop: Path) -> None:
    made = lines()
    made[0]["split"] = "train"
    write(shop, [*made, {**made[0], "split": "test"}])
    with pytest.raises(UsageError, match="Lines 1 and 31 ask the same"):
        load(shop)


def test_splits_that_the_file_names_hold(shop: Path) -> None:
    made = lines()
    for number, line in enumerate(made):
        line["split"] = list(Split)[number % 4]
        line["id"] = f"{line['split']}-{number}"
    scenario = load(write(shop, made))
    assert scenario.splits == tuple(Split)
    for split in Split:
        found = scenario.tasks(split, 0, 99)
        assert found
        assert all(task.id.startswith(f"{split}-") for task in found)
    few = [line for line in made if line["split"] != "test"]
    with pytest.raises(UsageError, match="too small: .*test has 0"):
        load(write(shop, few))


def test_splits_share_no_value_and_depend_on_the_lines_alone(shop: Path) -> None:
    one, other = load(shop), load(shop)
    assert [len(one.tasks(split, 0, 99)) for split in one.splits] == [18, 6, 6]
    assert all(one.tasks(s, 3, 9) == other.tasks(s, 3, 9) for s in one.splits)
    values = [
        {word for t in one.tasks(s, 0, 99) for word in t.instruction.split()}
        for s in one.splits
    ]
    shared = values[0] & (values[1] | values[2])
    assert not any(word.strip("?").isdigit() for word in shared)
    orders = [[t.id for t in one.tasks(Split.TRAIN, s, 99)] for s in (0, 1)]
    assert orders[0] != orders[1]
    assert sorted(orders[0]) == sorted(orders[1])
    kinds = {task.family for task in one.tasks(Split.TRAIN, 0, 99)}
    assert kinds == {"track_order", "list_orders", "track_order+cancel_order"}


def test_lines_of_one_entity_stay_together(shop: Path) -> None:
    made = lines()
    for line in lines()[1::3]:
        [call] = line["expect"]
        name = call["args"]["customer"]
        made.append({**line, "instruction": f"Which orders does {name} have?"})
    scenario = load(write(shop, made))
    where: dict[str, set[Split]] = {}
    for split in scenario.splits:
        for task in scenario.tasks(split, 0, 99):
            if task.family == "list_orders":
                name = task.goal["expect"][0]["args"]["customer"]
                where.setdefault(name, set()).add(split)
    assert len(where) == 10
    assert all(len(splits) == 1 for splits in where.values())


def test_every_kind_of_task_is_held_out_where_it_can_be(shop: Path) -> None:
    """Half the lines have one wording, which alone would keep them all together."""
    made = [
        {"instruction": f"Where is order {n}?", "expect": [_track(n)]}
        for n in range(100, 112)
    ]
    said = (
        "Show all of {}",
        "What did {} order",
        "Which things are on their way to {}",
        "{} wants to know everything that was bought",
        "Give me a list for {}",
        "Please find purchases by {}",
        "Has {} got anything open",
        "Anything in our books about {}?",
        "My colleague {} asks what is outstanding",
        "Look up {}",
    )
    made += [
        {
            "instruction": text.format(name),
            "expect": [{"tool": "list_orders", "args": {"customer": name}}],
        }
        for text, name in zip(said, CUSTOMERS, strict=True)
    ]
    scenario = load(write(shop, made))
    for split in scenario.splits:
        kinds = {task.family for task in scenario.tasks(split, 0, 99)}
        assert kinds == {"track_order", "list_orders"}, split


def test_a_fifth_is_held_out_where_one_wording_has_most_lines(shop: Path) -> None:
    said = ("Trace", "Find parcel", "Status please", "Any news on", "Look for", "Got")
    made = [
        {"instruction": f"Where is order {n}?", "expect": [_track(n)]}
        for n in range(100, 148)
    ]
    made += [
        {"instruction": f"{text} {n}", "expect": [_track(n)]}
        for n, text in enumerate(said * 2, 200)
    ]
    assert len(load(write(shop, made)).tasks(Split.TEST, 0, 99)) >= 12


@pytest.mark.slow
def test_what_is_not_measured_or_comes_twice_is_noted(
    shop: Path, agentgym: Command
) -> None:
    made = [
        {"instruction": f"Where is order {n}?", "expect": [_track(n)]}
        for n in range(100, 118)
    ]
    cancel = {"tool": "cancel_order", "args": {"order_id": 3, "reason": "late"}}
    made += [{"instruction": "Cancel 3.", "expect": [cancel], "split": "train"}] * 2
    path = write(shop, made)
    words = ["--tools-from", "shop_tools:TOOLS", "--framework", "native", "--dry-run"]
    planned = agentgym("train", "--tasks", str(path), *words)
    said = " ".join(planned.out.split())
    assert "no held-out task is of cancel_order: what is learned of these" in said
    assert "2 lines ask what another one asks, e.g. lines 19 and 20" in said


def _track(number: int) -> dict[str, Any]:
    return {"tool": "track_order", "args": {"order_id": number}}
