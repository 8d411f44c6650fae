"""Answers in a form: learning sees the distribution that was sampled from."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import jsonschema
import pytest
import torch

from agentgym.core.ledger import NOT_REPLAYED
from agentgym.core.policy import ChatRequest, ChatResult
from agentgym.core.template_settings import TemplateSettings
from agentgym.core.trajectory import Grammar, ModelCall, Trajectory
from agentgym.engines.local.loading import load_model
from agentgym.engines.local.loss import PolicyLoss
from agentgym.engines.local.model import LoadedModel
from agentgym.engines.local.policy import LocalPolicy
from agentgym.errors import GrammarError
from agentgym.train.batch import BatchBuilder, merged
from tests.core.formats.test_detect import CALLS, HEAD, TAIL
from tests.engines.local.rollouts import chat

ROUTE = {
    "type": "object",
    "properties": {
        "route": {"enum": ["billing", "tech", "done"]},
        "sure": {"type": "boolean"},
        "why": {"type": "string", "maxLength": 12},
    },
    "required": ["route", "sure", "why"],
}
LOOK = {"type": "object", "properties": {"deep": {"type": "boolean"}}}


def tool(name: str, schema: dict[str, Any]) -> dict[str, Any]:
    function = {"name": name, "description": "Say it.", "parameters": schema}
    return {"type": "function", "function": function}


TOOLS = [tool("Route", ROUTE), tool("look", LOOK)]


@pytest.fixture(scope="module")
def loaded() -> LoadedModel:
    return load_model("nano", device="cpu", rank=0, seed=0)


@pytest.fixture(scope="module")
def policy(loaded: LoadedModel) -> Iterator[LocalPolicy]:
    policy = LocalPolicy(loaded)
    yield policy
    policy.close()


def asked(seed: int, **changes: Any) -> ChatRequest:
    given: dict[str, Any] = {
        "messages": [{"role": "user", "content": f"Bill {seed % 5} is wrong."}],
        "tools": TOOLS,
        "wants_call": True,
        "max_tokens": 80,
        "temperature": 0.8,
        "seed": seed,
    }
    return ChatRequest(**{**given, **changes})


def require_learned_as_sampled(
    loaded: LoadedModel,
    policy: LocalPolicy,
    answered: Sequence[tuple[ChatRequest, ChatResult]],
) -> None:
    """Check that the learner gives tokens the log-probabilities they were sampled at.

    Only tokens count where the grammar left a choice.
    """
    loss = PolicyLoss(loaded, (0.2, 0.2), 0.0, temperature=0.8)
    for request, result in answered:
        call = call_of(request, result)
        allowed = policy.tokens.allowed(call)
        assert allowed is not None
        places = {at: one for at, one in enumerate(allowed) if one.count > 1}
        [forest] = loss.plant(merged([(call, places, 1.0)], 0))
        sums = loss.total(forest)
        assert sums.gap / sums.tokens < 1e-5


def call_of(request: ChatRequest, result: ChatResult) -> ModelCall:
    return ModelCall(
        tools=request.tools,
        prompt_ids=result.prompt_ids,
        response_ids=result.response_ids,
        logprobs=result.logprobs,
        grammar=result.grammar,
    )


FORM = {"form": "Route", "one_call": True, "tools": TOOLS[:1]}
KINDS: dict[str, dict[str, Any]] = {
    "a schema": FORM,
    "a schema or a tool": {"form": "Route"},
    "a call required": {},
    "a tool named": {"tools": TOOLS[1:], "one_call": True},
}


@pytest.mark.parametrize("kind", KINDS)
def test_answers_have_the_form_and_learning_sees_their_distribution(
    policy: LocalPolicy, loaded: LoadedModel, kind: str
) -> None:
    requests = [asked(seed, **KINDS[kind]) for seed in range(12)]
    results = chat(policy, [*requests, asked(0, wants_call=False)])
    assert results.pop().grammar is None
    loss = PolicyLoss(loaded, (0.2, 0.2), 0.0, temperature=0.8)
    gaps: list[float] = []
    for request, result in zip(requests, results, strict=True):
        assert result.finish_reason == "tool_calls", result
        offered = {each["function"]["name"] for each in request.tools}
        names = [call.name for call in result.tool_calls]
        assert set(names) <= offered
        assert not request.one_call or len(names) == 1
        for made in result.tool_calls:
            if made.name == "Route":
                given = json.loads(made.arguments)
                assert given["route"] in ("billing", "tech", "done")
                assert given.keys() == ROUTE["properties"].keys()
        call = call_of(request, result)
        allowed = policy.tokens.allowed(call)
        assert allowed is not None
        for one, logprob in zip(allowed, result.logprobs, strict=True):
            assert logprob == 0.0 or one.count > 1
        places = [at for at, one in enumerate(allowed) if one.count > 1]
        for at in places if request.seed < 3 else ():  # token by token
            [forest] = loss.plant(merged([(call, {at: allowed[at]}, 1.0)], 0))
            sums = loss.total(forest)
            assert sums.gap < 5e-5  # float32, by another kernel
            gaps.append(sums.gap)
            assert sums.entropy >= -1e-6
            assert sums.entropy < torch.tensor(float(allowed[at].count)).log() + 1e-5
    assert sum(gaps) / len(gaps) < 1e-5


@pytest.mark.slow
def test_gradients_are_those_of_the_masked_distribution(
    policy: LocalPolicy, loaded: LoadedModel
) -> None:
    """Sequences that share prefixes, some under a grammar, some not."""
    free = {"wants_call": False, "tools": TOOLS[:1]}
    requests = [asked(s, **(free if s % 4 == 0 else FORM)) for s in range(12)]
    results = chat(policy, requests)
    sequences = []
    for group, pair in enumerate(zip(requests, results, strict=True)):
        call = call_of(*pair)
        allowed = policy.tokens.allowed(call) if call.grammar else None
        places = dict(enumerate(allowed or [None] * len(call.response_ids)))
        sequences += merged([(call, places, (-1.0) ** group)], group % 5)
    total = sum(len(s.trained) for s in sequences)
    loaded.model.zero_grad()
    entropy, size = 0.05, loaded.vocabulary
    for sequence in sequences:
        logits = loaded.model(torch.tensor([sequence.ids])).logits[0] / 0.8
        objective = torch.zeros(())
        for token in sequence.trained:
            row = logits[token.position - 1]
            if token.allowed is not None:
                bits = int.from_bytes(token.allowed.bits, "little")
                kept = [n for n in range(size) if bits >> n & 1]
                place, row = kept.index(sequence.ids[token.position]), row[kept]
            else:
                place = sequence.ids[token.position]
            logprobs = torch.log_softmax(row, -1)
            ratio = (logprobs[place] - token.logprob).exp()
            objective = objective - ratio * token.advantage
            objective = objective + entropy * (logprobs.exp() * logprobs).sum()
        (objective / total).backward()
    expected = [p.grad.clone() for _, p in loaded.trained_parameters()]
    loaded.model.zero_grad()

    loss = PolicyLoss(replace(loaded, cores=1), (0.2, 0.2), entropy, temperature=0.8)
    for forest in loss.plant(sequences):
        loss.backward(forest, total)
    largest = max(float(each.abs().max()) for each in expected)
    for (name, p), wanted in zip(loaded.trained_parameters(), expected, strict=True):
        assert float((p.grad - wanted).abs().max()) < 2e-5 * max(1.0, largest), name
    loaded.model.zero_grad()


def test_decisions_are_trained_and_forced_tokens_are_not(policy: LocalPolicy) -> None:
    request = asked(3, **FORM)
    call = call_of(request, *chat(policy, [request]))
    rollouts = [
        Trajectory(
            rollout_id=str(n),
            scenario="s",
            task_id="t",
            steps=[call.model_copy()],
            reward=float(n),
            success=bool(n),
        )
        for n in range(2)
    ]
    calls = {"tool_selection": True, "parameter_selection": True}

    def trained(replay: Any, **more: bool) -> tuple[str, str]:
        label = policy.tokens.label
        builder = BatchBuilder("rloo", calls | more, label, 0.0, replay=replay)
        made = builder.build([rollouts], lambda each: [each.reward or 0.0])
        found = made.batch.sequences[:1]
        ids = [each.ids[token.position] for each in found for token in each.trained]
        return tokenizer.decode(ids), made.ledger["1"][0].reason

    tokenizer: Any = policy._loaded.tokenizer
    chosen, reason = trained(policy.tokens.allowed)
    whole, _ = trained(policy.tokens.allowed, output_generation=True)
    assert reason == ""
    assert 0 < len(chosen) < len(whole)
    assert "route" not in whole  # the grammar leaves no other field
    assert trained(None) == ("", NOT_REPLAYED)


@pytest.mark.slow
@pytest.mark.parametrize("deterministic", [False, True])
def test_drafts_and_rows_change_no_answer(
    loaded: LoadedModel, policy: LocalPolicy, deterministic: bool
) -> None:
    requests = [asked(seed, **FORM) for seed in range(8)]
    expected = [chat(policy, [each])[0].response_ids for each in requests]
    other = LocalPolicy(loaded, deterministic=deterministic)
    try:
        found = chat(other, requests)
    finally:
        other.close()
    assert [each.response_ids for each in found] == expected


def test_a_cut_answer_is_a_call_that_cannot_be_read(policy: LocalPolicy) -> None:
    [result] = chat(policy, [asked(0, max_tokens=6)])
    assert result.finish_reason == "length"
    assert [call.name for call in result.tool_calls] == ["malformed_call"]


@pytest.mark.parametrize(
    ("field", "wording"),
    [
        ({"not": {"type": "string"}}, "Unimplemented keys"),
        ({"type": "string", "pattern": "(?=x)y"}, "look-around"),
        ({"enum": []}, "Unsatisfiable"),
        ({"type": "objekt"}, "Invalid type"),
    ],
)
def test_a_schema_that_no_grammar_expresses_is_named(
    policy: LocalPolicy, field: dict[str, Any], wording: str
) -> None:
    schema = {"type": "object", "properties": {"x": field}, "required": ["x"]}
    request = asked(0, tools=[tool("Odd", schema)], form="Odd")
    with pytest.raises(GrammarError, match=f"'Odd'.*{wording}"):
        chat(policy, [request])


def test_a_tools_schema_is_kept_as_far_as_it_can_be(policy: LocalPolicy) -> None:
    tags = {"type": "array", "items": {"enum": [1]}, "maxItems": 2, "uniqueItems": True}
    schema = {"type": "object", "properties": {"tags": tags}, "required": ["tags"]}
    [result] = chat(policy, [asked(0, tools=[tool("tag", schema)])])
    assert json.loads(result.tool_calls[0].arguments)["tags"] in ([], [1], [1, 1])


def test_ids_of_another_grammar_are_not_learned_from(policy: LocalPolicy) -> None:
    request = asked(1, **FORM)
    [result] = chat(policy, [request])
    [other] = chat(policy, [asked(1, tools=TOOLS[1:])])
    assert other.grammar is not None
    call = call_of(request, replace(result, grammar=Grammar(text=other.grammar.text)))
    assert policy.tokens.allowed(call) is None


@pytest.fixture(scope="module")
def constrained() -> Iterator[LocalPolicy]:
    """Return a policy whose calls follow the tools' schemas, also if none is asked."""
    settings = TemplateSettings(constrain="calls")
    loaded = load_model("nano", device="cpu", rank=0, seed=0, template=settings)
    policy = LocalPolicy(loaded)
    yield policy
    policy.close()


@pytest.mark.slow
def test_constrained_calls_are_valid_and_text_stays_free(
    constrained: LocalPolicy, policy: LocalPolicy, loaded: LoadedModel
) -> None:
    free = {"wants_call": False, "temperature": 2.0}
    requests = [asked(seed, **free) for seed in range(24)]
    requests += [asked(seed, wants_call=False) for seed in range(24, 48)]
    plain, held = chat(policy, requests), chat(constrained, requests)
    assert any(
        call.name == "malformed_call" for each in plain for call in each.tool_calls
    )
    whole = [each for each in held if each.finish_reason != "length"]
    names = {call.name for each in whole for call in each.tool_calls}
    assert names == {"Route", "look"}
    for made in (made for each in whole for made in each.tool_calls):
        schema = ROUTE if made.name == "Route" else LOOK
        jsonschema.validate(json.loads(made.arguments), schema)
    assert any(each.content for each in held)
    answered = list(zip(requests[24:30], held[24:30], strict=True))
    require_learned_as_sampled(loaded, constrained, answered)


@pytest.mark.slow
@pytest.mark.parametrize("form", ["xml", "mistral", "pythonic"])
def test_calls_of_other_forms_are_valid_and_learned_as_they_were_sampled(
    loaded: LoadedModel, form: str
) -> None:
    """The shipped model does not know these forms: the grammar alone makes calls."""
    settings = TemplateSettings(
        constrain="calls", chat_template=HEAD + CALLS[form] + TAIL
    )
    made = load_model("nano", device="cpu", rank=0, seed=0, template=settings)
    policy = LocalPolicy(made)
    requests = [asked(seed, one_call=True, max_tokens=300) for seed in range(6)]
    try:
        results = chat(policy, requests)
    finally:
        policy.close()
    whole = [each for each in results if each.finish_reason != "length"]
    assert whole
    for each in whole:
        [written] = each.tool_calls
        schema = {"Route": ROUTE, "look": LOOK}[written.name]
        jsonschema.validate(json.loads(written.arguments), schema)
        assert each.content is None
    answered = list(zip(requests, results, strict=True))
    require_learned_as_sampled(loaded, policy, answered)
