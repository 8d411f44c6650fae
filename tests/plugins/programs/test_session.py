"""What the model's endpoint records of a program's calls."""

from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from agentgym.core.openai import ApiError
from agentgym.core.task import Split, Task
from agentgym.core.tools import ToolOutcome
from agentgym.errors import ContextLengthError
from agentgym.integrations.episode import Episode, EpisodeCut
from agentgym.plugins.programs.session import ProgramSession, failed
from tests.plugins.programs.bookshop import TOOLS

TASK = Task(
    id="t", split=Split.TRAIN, seed=0, family="f", level=1, instruction="Order Dune."
)
Call = tuple[str, str]


def session_of(*answers: Sequence[Call] | Exception) -> ProgramSession:
    """Return a session whose model makes these calls, one list an answer."""
    said: Iterator[Sequence[Call] | Exception] = iter(answers)

    async def ask(episode: Episode, body: dict[str, Any], role: str) -> dict[str, Any]:
        episode.begin_turn(role)
        answer = next(said)
        if isinstance(answer, Exception):
            raise answer
        calls = [
            {
                "id": f"call-{episode.turns}-{place}",
                "type": "function",
                "function": {"name": name, "arguments": arguments},
            }
            for place, (name, arguments) in enumerate(answer)
        ]
        message = {"role": "assistant", "content": "Done.", "tool_calls": calls}
        return {"id": "c", "model": "m", "choices": [{"message": message}]}

    return ProgramSession(Episode(TASK, max_turns=9), ask)


def result(name: str, content: Any, **more: Any) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": name, "content": content, **more}


async def asked(session: ProgramSession, *results: dict[str, Any]) -> Any:
    body = {"messages": [{"role": "user", "content": "…"}, *results], "tools": TOOLS}
    return await session.answer(body, "agent")


async def test_outcomes_are_read_from_the_next_prompt() -> None:
    calls = [
        ("stock", '{"title": "Dune"}'),
        ("stock", '{"title": "Emma"}'),
        ("order", '{"title": "Dune"}'),
        ("order", "{"),
        ("burn", "{}"),
        ("order", '{"title": "Dune", "copies": 1}'),
    ]
    session = session_of(calls, [])
    await asked(session)
    texts: list[Any] = ["3 copies", "Error: no such book", "ok", "ok", "ok"]
    given = [result(f"call-1-{n}", text) for n, text in enumerate(texts)]
    parts = [{"type": "text", "text": "no "}, {"type": "text", "text": "paper"}]
    given.append(result("call-1-5", parts, is_error=True))
    given.append(result("another", "is not one of the model's"))
    await asked(session, *given)
    made = session.episode.tool_calls
    assert [(call.name, call.outcome) for call in made] == [
        ("stock", ToolOutcome.OK),
        ("stock", ToolOutcome.RAISED),
        ("order", ToolOutcome.INVALID_ARGUMENTS),
        ("order", ToolOutcome.MALFORMED),
        ("burn", ToolOutcome.UNKNOWN_TOOL),
        ("order", ToolOutcome.RAISED),
    ]
    assert made[5].result == "no paper"
    assert made[5].arguments == {"title": "Dune", "copies": 1}
    assert "is_error" not in given[5]  # no model is sent it


async def test_the_models_own_words_are_put_back_into_the_prompt() -> None:
    session = session_of([("stock", '{"title":  "Dune"}'), ("order", "{")], [])
    await asked(session)
    said = [("call-1-0", '{"title":"Dune"}'), ("call-1-1", "{}")]  # as clients write it
    calls = [
        {"id": name, "function": {"name": "…", "arguments": given}}
        for name, given in said
    ]
    again = {"role": "assistant", "content": "Done.", "tool_calls": calls}
    await asked(session, again)
    written = [call["function"]["arguments"] for call in again["tool_calls"]]  # type: ignore[index]
    assert written == ['{"title":  "Dune"}', "{"]
    other = {"id": "call-1-0", "function": {"arguments": '{"title": "Emma"}'}}
    edited = {"role": "assistant", "content": "Done.", "tool_calls": [other]}
    with pytest.raises(ApiError):  # the script is at its end
        await asked(session, edited)
    assert other["function"]["arguments"] == '{"title": "Emma"}'  # type: ignore[index]


async def test_calls_that_a_program_ends_with_are_made() -> None:
    session = session_of([("stock", '{"title": "Dune"}'), ("burn", "{}")])
    await asked(session)
    session.end(came_to_end=True)
    assert [call.outcome for call in session.episode.tool_calls] == [
        ToolOutcome.OK,
        ToolOutcome.UNKNOWN_TOOL,
    ]


async def test_results_that_follow_in_words_are_those_of_the_calls_named_before() -> (
    None
):
    calls = [("stock", '{"title": "Dune"}'), ("stock", '{"title": "Emma"}')]
    session = session_of(calls, [("stock", '{"title": "Ulysses"}')], [])
    await asked(session)
    said = {"role": "assistant", "content": "I call call-1-0 and call-1-1."}
    seen = {"role": "user", "content": [{"type": "text", "text": "Seen: 3, 0"}]}
    await asked(session, said, seen)
    again = {"role": "assistant", "content": [{"text": "I call call-2-0."}]}
    failure = {"role": "user", "content": "Error: no such book"}
    await asked(session, said, seen, again, failure)
    assert [(c.id, c.outcome, c.result) for c in session.episode.tool_calls] == [
        ("call-1-0", ToolOutcome.OK, "Seen: 3, 0"),
        ("call-1-1", ToolOutcome.OK, "Seen: 3, 0"),
        ("call-2-0", ToolOutcome.RAISED, "Error: no such book"),
    ]


async def test_calls_without_a_result_are_made_unless_others_got_theirs() -> None:
    dune, emma = ("stock", '{"title": "Dune"}'), ("stock", '{"title": "Emma"}')
    order = ("order", '{"title": "Dune", "copies": 1}')
    session = session_of([order], [dune, emma], [dune], [order])
    for _ in range(2):  # control passes to another agent, which is shown no result
        await asked(session)
    for _ in range(2):  # of two calls, only the first is run
        await asked(session, result("call-2-0", "3 copies"))
    session.end(came_to_end=False)  # a crash at the last call
    assert [(c.id, c.outcome) for c in session.episode.tool_calls] == [
        ("call-2-0", ToolOutcome.OK),
        ("call-1-0", ToolOutcome.OK),
    ]


async def test_the_same_failing_call_three_times_ends_the_episode() -> None:
    again = [("stock", '{"title": "Nemo"}')]
    session = session_of(again, again, again, again)
    await asked(session)
    for turn in (1, 2):
        await asked(session, result(f"call-{turn}-0", "Error: no such book"))
    with pytest.raises(ApiError, match="The rollout is over: stuck"):
        await asked(session, result("call-3-0", "Error: no such book"))
    assert session.over.is_set()
    with pytest.raises(EpisodeCut):
        session.episode.begin_turn()


async def test_a_prompt_beyond_the_context_is_not_tried_again() -> None:
    session = session_of(ContextLengthError("1,025 tokens"))
    with pytest.raises(ApiError, match="1,025 tokens") as caught:
        await asked(session)
    assert (caught.value.status, caught.value.code) == (400, "context_length_exceeded")


async def test_a_failing_model_is_why_until_it_answers() -> None:
    session = session_of(RuntimeError("no such layer"), [])
    with pytest.raises(ApiError, match="RuntimeError: no such layer"):
        await asked(session)
    assert isinstance(session.failure, RuntimeError)
    await asked(session)
    assert session.failure is None


@pytest.mark.parametrize(
    ("text", "is_error"),
    [
        ("Error: no such book", True),
        ("ValueError: 7 is too much", True),
        ("subprocess.CalledProcessError: exit 1", True),
        ("Traceback (most recent call last):\n  File …", True),
        ('{"error": "no such book"}', True),
        ('{"isError": true, "content": []}', True),
        ("An error occurred while running the tool.", True),
        ('{"error": null, "copies": 3}', False),
        ("{not JSON", False),
        ("Error handling is in chapter 3.", False),
        ("The log says: Error: disk full", False),
        ("0 errors", False),
        ("", False),
    ],
)
def test_only_plain_errors_are_errors(text: str, is_error: bool) -> None:
    assert failed(text) is is_error
