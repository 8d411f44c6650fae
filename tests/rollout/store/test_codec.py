"""Rows of model calls: what is packed comes back exactly."""

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from agentgym.rollout.store.calls import RecordedCall
from agentgym.rollout.store.codec import pack_call, unpack_call

ids = st.lists(st.integers(0, 2**31), max_size=12)
messages = st.lists(
    st.fixed_dictionaries(
        {"role": st.just("user"), "content": st.text("ab\u00e9", max_size=5)}
    ),
    max_size=4,
)
logprobs = st.none() | st.lists(st.floats(-50, 0, allow_nan=False), max_size=5)


def call(**fields: Any) -> RecordedCall:
    defaults: dict[str, Any] = {
        "agent": "agent",
        "model": "m",
        "endpoint": "e",
        "model_version": 3,
        "request": {},
        "response": {"choices": []},
        "prompt_ids": [],
        "response_ids": [],
    }
    return RecordedCall(**{**defaults, **fields})


calls = st.builds(
    call,
    request=st.fixed_dictionaries(
        {"temperature": st.floats(0, 2)}, optional={"messages": messages}
    ),
    prompt_ids=ids,
    response_ids=ids,
    logprobs=logprobs,
    routed_experts=st.none() | st.lists(st.integers(0, 9), min_size=1, max_size=3),
)


@settings(deadline=None)
@given(conversation=st.lists(calls, max_size=4))
def test_calls_come_back_exactly(conversation: list[RecordedCall]) -> None:
    before: RecordedCall | None = None
    for now in conversation:
        assert unpack_call(pack_call(now, before), before) == now
        before = now


def test_a_conversation_that_grows_is_stored_once() -> None:
    text = "x" * 1000
    first = call(
        request={"messages": [{"content": text}], "tools": [{"name": text}]},
        prompt_ids=list(range(5000)),
    )
    second = call(
        request={
            "messages": [{"content": text}, {"content": "more"}],
            "tools": [{"name": text}],
        },
        prompt_ids=[*range(5000), 1, 2, 3],
    )
    data, tokens, _ = pack_call(second, first)
    assert text.encode() not in data
    assert len(tokens or b"") == 6
