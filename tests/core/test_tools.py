"""Tools: from a typed function to a schema, and back from a model's call."""

import pytest
from pydantic import ValidationError

from agentgym.core.tools import (
    ToolOutcome,
    bound_tools,
    check_call,
    parse_arguments,
    spec_of,
    tool,
    tool_specs,
)
from agentgym.errors import ScenarioError


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


def test_a_property_named_title_keeps_its_place_in_the_schema() -> None:
    assert "title" in tool_specs(Shelf)[0].parameters["properties"]


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


def test_arguments_that_are_no_object_are_malformed() -> None:
    assert parse_arguments("[1]") is None
    assert parse_arguments("nonsense") is None
    assert parse_arguments('{"a": 1}') == {"a": 1}


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
