"""Tools: from a typed function to a schema, and back from a model's call."""

import asyncio
from threading import Thread
from typing import Annotated, Any

import pytest
from pydantic import BaseModel, Field, ValidationError, field_validator

from agentgym.core.tools import (
    Tool,
    ToolOutcome,
    ToolSpec,
    bound_tools,
    check_call,
    is_recordable,
    parse_arguments,
    run_tool,
    same_arguments,
    spec_of,
    tool,
    tool_specs,
)
from agentgym.errors import ScenarioError
from agentgym.scenarios.tool_tasks.unseen import UnseenSpec


class Shelf:
    """Two tools, one of them async."""

    def __init__(self) -> None:
        self.books: list[str] = []

    @tool
    def add_book(self, title: str, copies: int = 1) -> str:
        """Put a book on the shelf.

        Args:
            title: What it is called.
            copies: How many there are.

        Returns:
            What happened.
        """
        self.books += [title] * copies
        return f"{len(self.books)} books"

    @tool
    async def count_books(self) -> str:
        """Count the books."""
        return str(len(self.books))


class BiggerShelf(Shelf):
    """Overrides one tool and adds one."""

    @tool
    def add_book(self, title: str) -> str:
        """Put one book on the bigger shelf."""
        return title

    @tool
    def clear(self) -> str:
        """Take everything away."""
        return ""


def test_schema_comes_from_signature_and_docstring() -> None:
    spec = tool_specs(Shelf)[0]
    assert spec.to_openai() == {
        "type": "function",
        "function": {
            "name": "add_book",
            "description": "Put a book on the shelf.",
            "parameters": {
                "type": "object",
                "additionalProperties": False,
                "properties": {
                    "title": {"type": "string", "description": "What it is called."},
                    "copies": {
                        "type": "integer",
                        "default": 1,
                        "description": "How many there are.",
                    },
                },
                "required": ["title"],
            },
        },
    }


async def test_bound_tools_validate_coerce_and_run_sync_and_async() -> None:
    shelf = Shelf()
    add, count = bound_tools(shelf)
    assert await add(title="Emma", copies="2") == "2 books"
    assert await count() == "2"
    with pytest.raises(ValidationError):
        await add(title="Emma", colour="red")


def test_overridden_tools_take_the_subclass_spec() -> None:
    names = {spec.name: spec for spec in tool_specs(BiggerShelf)}
    assert set(names) == {"add_book", "count_books", "clear"}
    assert "copies" not in names["add_book"].parameters["properties"]


@pytest.mark.parametrize(
    ("name", "arguments", "outcome"),
    [
        ("add_book", '{"title": "Emma"}', ToolOutcome.OK),
        ("add_book", '{"title": "Emma", "copies": "2"}', ToolOutcome.OK),
        ("add_books", '{"title": "Emma"}', ToolOutcome.UNKNOWN_TOOL),
        ("add_book", '{"title": "Emma"', ToolOutcome.MALFORMED),
        ("add_book", '["Emma"]', ToolOutcome.MALFORMED),
        ("add_book", "{}", ToolOutcome.INVALID_ARGUMENTS),
        ("add_book", '{"title": "E", "copies": "x"}', ToolOutcome.INVALID_ARGUMENTS),
        ("add_book", '{"title": "E", "extra": 1}', ToolOutcome.INVALID_ARGUMENTS),
        ("count_books", "", ToolOutcome.OK),
    ],
)
def test_calls_are_judged_against_the_original_schema(
    name: str, arguments: str, outcome: ToolOutcome
) -> None:
    specs = {spec.name: spec for spec in tool_specs(Shelf)}
    found, reason = check_call(specs, name, arguments)
    assert found is outcome
    assert bool(reason) is (outcome is not ToolOutcome.OK)


def test_a_tool_without_types_or_docstring_is_refused() -> None:
    def untyped(value) -> str:  # type: ignore[no-untyped-def]
        """Has no annotation."""
        return ""

    def undocumented(value: str) -> str:
        return value

    with pytest.raises(ScenarioError, match="'value' of tool 'untyped'"):
        spec_of(untyped)
    with pytest.raises(ScenarioError, match="'undocumented' has no docstring"):
        tool(undocumented)


def test_a_tool_whose_arguments_have_no_names_or_types_is_refused() -> None:
    def variadic(*values: str) -> str:
        """Takes any number."""
        return ""

    def unknown(value: "Nowhere") -> str:  # type: ignore[name-defined]  # noqa: F821
        """Has a type that does not exist."""
        return ""

    with pytest.raises(ScenarioError, match=r"'\*values: str' of tool 'variadic'"):
        spec_of(variadic)
    with pytest.raises(ScenarioError, match="tool 'unknown' cannot be read"):
        spec_of(unknown)


class InjectedToolArg:
    """As LangChain names what it fills in itself."""


class OfTheRun(InjectedToolArg):
    """As what is derived from it."""


def test_arguments_that_a_framework_fills_in_are_hidden_from_the_model() -> None:
    def note(
        text: str, who: Annotated[str, InjectedToolArg], run: OfTheRun, n: int = 1
    ) -> str:
        """Note something."""
        return f"{text} {who} {run} {n}"

    assert list(spec_of(note).parameters["properties"]) == ["text", "n"]


def test_a_type_that_json_cannot_hold_is_refused() -> None:
    def keep(store: object, lock: Thread) -> str:
        """Keep something."""
        return f"{store} {lock}"

    with pytest.raises(ScenarioError, match=r"'keep' has a type that JSON cannot hold"):
        spec_of(keep)


def test_descriptions_that_go_on_in_the_next_line_are_joined() -> None:
    def lend(title: str) -> str:
        """Lend a book.

        Args:
            title: What it is called,
                as on the cover.
        """
        return title

    properties = spec_of(lend).parameters["properties"]
    assert properties["title"]["description"] == "What it is called, as on the cover."


def roll(
    sides: Annotated[int, Field(ge=2, le=20, description="How many sides.")],
    times: int = Field(1, ge=1, description="How often."),
    bonus: Annotated[int, Field(le=9)] = 0,
) -> str:
    """Roll a die.

    Args:
        bonus: What is added.
    """
    return f"{sides} {times} {bonus}"


def test_limits_and_descriptions_of_fields_reach_the_schema() -> None:
    assert spec_of(roll).parameters["properties"] == {
        "sides": {
            "type": "integer",
            "minimum": 2,
            "maximum": 20,
            "description": "How many sides.",
        },
        "times": {
            "type": "integer",
            "default": 1,
            "minimum": 1,
            "description": "How often.",
        },
        "bonus": {
            "type": "integer",
            "default": 0,
            "maximum": 9,
            "description": "What is added.",
        },
    }


async def test_limits_and_defaults_of_fields_hold_when_a_tool_is_called() -> None:
    tools = {"roll": Tool(spec_of(roll), roll)}

    assert await run_tool(tools, "roll", {"sides": 6}) == (ToolOutcome.OK, "6 1 0")
    for wrong in ({"sides": 99}, {"sides": 6, "times": 0}, {"sides": 6, "bonus": 10}):
        outcome, said = await run_tool(tools, "roll", wrong)
        assert outcome is ToolOutcome.INVALID_ARGUMENTS
        assert said.startswith(f"Error: {list(wrong)[-1]}: ")


async def test_a_mistake_of_the_tools_own_code_is_not_the_models() -> None:
    class Order(BaseModel):
        number: int

    def order(number: str) -> str:
        """Order something."""
        return str(Order.model_validate({"number": number}).number)

    tools = {"order": Tool(spec_of(order), order)}

    assert await run_tool(tools, "order", {"number": "7"}) == (ToolOutcome.OK, "7")
    with pytest.raises(ValidationError, match="validation error for Order"):
        await run_tool(tools, "order", {"number": "seven"})
    outcome, _ = await run_tool(tools, "order", {})
    assert outcome is ToolOutcome.INVALID_ARGUMENTS


@pytest.mark.parametrize(
    ("result", "text"),
    [
        ("plain", "plain"),
        (None, "null"),
        ({"ok": True, "names": ["Zoë"]}, '{"ok": true, "names": ["Zoë"]}'),
    ],
)
async def test_what_is_no_text_reaches_the_agent_as_json(
    result: Any, text: str
) -> None:
    def sync() -> Any:
        """Return it at once."""
        return result

    async def slow() -> Any:
        """Return it later."""
        await asyncio.sleep(0)
        return result

    for function in (sync, slow):
        tools = {"it": Tool(spec_of(function), function)}
        assert await run_tool(tools, "it", {}) == (ToolOutcome.OK, text)


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity", "1e400"])
def test_numbers_that_are_not_finite_are_no_arguments(number: str) -> None:
    def heat(degrees: float) -> str:
        """Heat the room."""
        return str(degrees)

    specs = {"heat": spec_of(heat)}

    assert parse_arguments(f'{{"degrees": [{{"a": {number}}}]}}') is None
    assert not is_recordable({"degrees": float(number)})
    written = f'{{"degrees": {number}}}'
    assert check_call(specs, "heat", written)[0] is ToolOutcome.MALFORMED
    quoted = f'{{"degrees": "{number}"}}'
    assert check_call(specs, "heat", quoted)[0] is ToolOutcome.INVALID_ARGUMENTS
    assert is_recordable({"degrees": 21.5})


def test_an_argument_may_be_named_keys() -> None:
    def open_doors(keys: str) -> str:
        """Open doors."""
        return keys

    assert spec_of(open_doors).validate({"keys": "all"}) == {"keys": "all"}


class Strict(BaseModel):
    """Arguments whose validator raises another exception than ValueError."""

    amount: float

    @field_validator("amount", mode="before")
    @classmethod
    def money(cls, text: str) -> float:
        return float(text.removesuffix(" EUR"))


def test_whatever_a_validator_raises_refuses_the_call() -> None:
    spec = ToolSpec("pay", "Pay.", Strict)
    assert check_call({"pay": spec}, "pay", '{"amount": "7 EUR"}')[0] is ToolOutcome.OK
    outcome, reason = check_call({"pay": spec}, "pay", '{"amount": 7}')
    assert outcome is ToolOutcome.INVALID_ARGUMENTS
    assert "removesuffix" in reason


def test_defaults_that_differ_each_time_do_not_make_equal_arguments_differ() -> None:
    def order(item: str, id: Annotated[str, Field(default_factory=_next_id)]) -> str:
        """Order an item."""
        return item

    assert same_arguments(spec_of(order), {"item": "pen"}, {"item": "pen"})


def _next_id() -> str:
    _IDS.append(len(_IDS))
    return str(_IDS)


_IDS: list[int] = []


def test_every_argument_of_a_function_is_in_its_schema_whatever_its_name() -> None:
    def choose(model_config: str, model_dump: int, _x: str = "y") -> str:
        """Choose a model."""
        return f"{model_config} {model_dump} {_x}"

    spec = spec_of(choose)
    assert list(spec.parameters["properties"]) == ["model_config", "model_dump", "_x"]
    arguments = {"model_config": "a", "model_dump": "7"}
    assert asyncio.run(Tool(spec, choose)(**arguments)) == "a 7 y"
    assert same_arguments(spec, arguments, {**arguments, "model_dump": 7, "_x": "y"})


def test_tools_of_one_name_accept_the_calls_of_each_agent() -> None:
    both = UnseenSpec("lookup")
    assert both.accepts({"anything": 1})
    for name, kind in (("room", "integer"), ("person", "string"), ("room", "integer")):
        schema = {"type": "object", "properties": {name: {"type": kind}}}
        schema["required"] = [name]
        both.learn({"name": "lookup", "description": "Look.", "parameters": schema})
    assert both.accepts({"room": 7})
    assert both.accepts({"person": "Ada"})
    assert not both.accepts({})
    assert not both.accepts({"person": 7})
