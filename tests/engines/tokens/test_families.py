"""Families of models with real templates and vocabularies, against `renderers`."""

import json
import os
import random
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

import pytest
from transformers import PreTrainedTokenizerBase

from agentgym.core.components import OUTPUT, PARAMETERS, REASONING, is_trained
from agentgym.core.components import TOOL as SELECTION
from agentgym.core.formats.base import ToolFormat
from agentgym.core.policy import ChatRequest
from agentgym.core.trajectory import ModelCall, RequestedCall
from agentgym.engines.tokens.responses import Detokenizer
from agentgym.train.batch import TOOL_CALLS
from tests.core.formats.writing import TOOL, write
from tests.engines.tokens.families import (
    FAMILIES,
    NPM,
    Family,
    Opened,
    as_objects,
    harmony_words,
    read_tekken,
    read_tokenizer,
)
from tests.packages import MISTRAL_COMMON, TRL, unpacked_npm, unpacked_wheels

pytestmark = [pytest.mark.sweep, pytest.mark.timeout(600)]

MISTRAL = Family("mistral", "tekken")
_GENERATE = """
import sys
from mistral_common.integrations.chat_templates.chat_templates import (
    generate_chat_template)
from mistral_common.tokens.tokenizers.base import TokenizerVersion
print(generate_chat_template(
    False, TokenizerVersion.v13, False, False, True, None, False, True, None, None, None
))
"""
TYPES = {"text": "string", "count": "integer", "on": "boolean"}
SAVE = {
    "type": "function",
    "function": {
        "name": "save",
        "description": "Save a text.",
        "parameters": {
            "type": "object",
            "properties": {
                key: {"type": kind, "description": f"The {key}."}
                for key, kind in TYPES.items()
            },
            "required": ["text"],
        },
    },
}
SYSTEM = {"role": "system", "content": "Be brief."}
ASKED = {"role": "user", "content": "Save it, please."}

Open = Callable[[Family], Opened]


@pytest.fixture(scope="module")
def opened(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Open]:
    """Yield what opens a family; packages are fetched when they are first needed."""
    folder = tmp_path_factory.mktemp("packages")

    @cache
    def npm(name: str) -> Path:
        return unpacked_npm(NPM[name], folder / name)

    @cache
    def trl() -> Path:
        return unpacked_wheels(folder / "trl", TRL) / "trl" / "chat_templates"

    @cache
    def mistral() -> Path:
        return unpacked_wheels(folder / "mistral", *MISTRAL_COMMON)

    @cache
    def tekken() -> PreTrainedTokenizerBase:
        data = mistral() / "mistral_common" / "data"
        return read_tekken(data / "tekken_240911.json")

    @lru_cache(maxsize=1)  # a family's tests follow each other
    def open_family(family: Family) -> Opened:
        if family is MISTRAL:
            done = subprocess.run(
                [sys.executable, "-c", _GENERATE], capture_output=True, text=True,
                env={**os.environ, "PYTHONPATH": str(mistral())}, check=True,
            )  # fmt: skip
            return Opened.of(family, tekken(), done.stdout)
        gemma = family.vocabulary == "gemma"
        package = npm("qwen3" if gemma else family.vocabulary)
        tokenizer = read_tokenizer(package, gemma=gemma)
        template = (trl() / f"{family.template}.jinja").read_text()
        if family.oracle == "gpt-oss":
            words = folder / "harmony"
            words.mkdir(exist_ok=True)
            (words / "o200k_base.tiktoken").write_bytes(harmony_words(package))
            patch.setenv("TIKTOKEN_ENCODINGS_BASE", str(words))
        return Opened.of(family, tokenizer, template)

    with pytest.MonkeyPatch.context() as patch:
        yield open_family


def call(number: int, **arguments: Any) -> RequestedCall:
    return RequestedCall(
        id=f"call0000{number}", name="save", arguments=json.dumps(arguments)
    )


def result_of(made: RequestedCall, content: str) -> dict[str, Any]:
    return {
        "role": "tool", "tool_call_id": made.id, "name": made.name, "content": content,
    }  # fmt: skip


def message(content: str | None, calls: list[RequestedCall]) -> dict[str, Any]:
    made: dict[str, Any] = {"role": "assistant", "content": content}
    if calls:
        made["tool_calls"] = [call.to_openai() for call in calls]
    return made


HARMONY_BEGINS = "<|channel|>analysis<|message|>"
"""With it the oracle's prompts of gpt-oss go on; its template's do not."""


@pytest.mark.parametrize("start", [[ASKED], [SYSTEM, ASKED]], ids=["user", "system"])
@pytest.mark.parametrize(
    "family", [f for f in FAMILIES if f.oracle], ids=lambda family: family.template
)
def test_three_turns_have_the_tokens_of_the_oracle(
    family: Family, start: list[dict[str, Any]], opened: Open
) -> None:
    renderers = pytest.importorskip("renderers")
    found = opened(family)
    tokens, tokenizer = found.tokens, found.tokenizer
    config = renderers.config_from_name(family.oracle)
    config = config.model_copy(update=dict(family.variables))
    oracle = renderers.create_renderer(tokenizer, config)
    harmony = family.oracle == "gpt-oss"
    extra = tokenizer.encode(HARMONY_BEGINS) if harmony else []

    def expected(found: list[int]) -> list[int]:
        return found[: -len(extra)] if extra else found

    def rendered(messages: list[dict[str, Any]]) -> list[int]:
        found = oracle.render_ids(
            as_objects(messages), tools=[SAVE], add_generation_prompt=True
        )
        return expected(list(found))

    asked = list(start)
    request = ChatRequest(messages=asked, tools=[SAVE], session="s")
    assert tokens.prompt(request)[0].ids == rendered(asked)
    one_at_a_time = found.template.form.one_call
    assert one_at_a_time is (harmony or family.oracle == "llama-3")
    turns = [
        [call(1, text='x "y"\n  z', count=3, on=True)],
        [call(2, text="a"), call(3, text="b")][: 1 if one_at_a_time else 2],
        [],
    ]
    for calls in turns:
        request = ChatRequest(asked, [SAVE], session="s", max_tokens=4000)
        given = tokens.written(request, "" if calls else "It is done.", calls)
        sampled = given.prompt_ids + given.response_ids
        # The template of gpt-oss writes results as JSON, the oracle as they are.
        text = json.dumps("é done\n", ensure_ascii=False) if harmony else "é done\n"
        shown = [result_of(made, text) for made in calls] or [ASKED]
        new = [result_of(made, "é done\n") for made in calls] or [ASKED]
        asked = [*asked, message(given.content, calls), *new]
        ours = tokens.prompt(ChatRequest(asked, [SAVE], session="s"))[0].ids
        bridged = oracle.bridge_to_next_turn(
            given.prompt_ids, given.response_ids, as_objects(shown), tools=[SAVE]
        )
        if bridged is not None:
            ids = expected(list(getattr(bridged, "token_ids", bridged)))
            assert ours == ids
            assert ours[: len(sampled)] == sampled
        elif not harmony:  # whose calls of earlier turns have another header
            assert ours == rendered(asked)


ODD = {
    "hermes": [('": ', '"  : '), ('"arguments"', '"arguments" ')],
    "json": [('": ', '"  : '), ("{", "{ ")],
    "harmony": [('": ', '"  : ')],
    "mistral": [('": ', '"  : '), ('{"', '{ "')],
    "xml": [(">\ntrue\n<", ">True<")],
    "gemma": [],
    "pythonic": [(", ", " ,  ")],
}
"""What models write, and no template does."""


def spelled(form: str, number: int, *, reasons: bool, in_prompt: bool) -> str:
    """Return an answer as a model might spell it."""
    arguments = {"text": f"splitted words {number}", "count": number, "on": True}
    written = write(form, "save", arguments)
    for usual, odd in ODD[form]:
        written = written.replace(usual, odd)
    if form == "harmony":
        thought = "<|channel|>analysis<|message|>Hm: save.<|end|><|start|>assistant"
        return thought * reasons + written.removesuffix("<|call|>")
    opening, closing = {
        "gemma": ("<|channel>thought\n", "<channel|>"),
        "mistral": ("[THINK]", "[/THINK]"),
    }.get(form, ("<think>\n", "\n</think>\n\n"))
    if in_prompt:
        return f"Hm: save.{closing}{written}"
    thought = f"{opening}Hm: save.{closing}" if reasons else ""
    return thought + ("I save. " if form not in ("json", "gemma") else "") + written


def in_odd_tokens(
    tokenizer: PreTrainedTokenizerBase, text: str, rng: random.Random
) -> list[int]:
    """Return tokens of a text that is split where no tokenizer would."""
    special = sorted(tokenizer.get_added_vocab(), key=len, reverse=True)
    parts = re.split(f"({'|'.join(map(re.escape, special))})", text)
    ids: list[int] = []
    for part in filter(None, parts):
        if part in special:
            ids.append(tokenizer.convert_tokens_to_ids(part))
            continue
        while part:
            size = rng.choice([1, 2, 3, 5, 200])
            ids += tokenizer.encode(part[:size], add_special_tokens=False)
            part = part[size:]
    return ids


@pytest.mark.parametrize("speaks", [False, True], ids=["results", "user"])
@pytest.mark.parametrize("reasons", [False, True], ids=["calls", "reasons"])
@pytest.mark.parametrize(
    "family", [*FAMILIES, MISTRAL], ids=lambda family: family.template
)
def test_odd_spellings_stay_and_no_token_is_trained_by_half(
    family: Family, reasons: bool, speaks: bool, opened: Open
) -> None:
    found = opened(family)
    tokens, tokenizer, form = found.tokens, found.tokenizer, found.template.format
    pieces_of = Detokenizer(tokenizer).pieces
    for seed in range(4):
        rng = random.Random(seed)
        session = f"{seed}{reasons}{speaks}"
        asked: list[dict[str, Any]] = [SYSTEM, ASKED]
        seen: list[int] = []
        for number in range(3):
            request = ChatRequest(asked, [TOOL], session=session)
            prompt, _ = tokens.prompt(request)
            in_prompt = form.thinks(prompt.end)
            drops = not found.template.keeps_reasoning and (reasons or in_prompt)
            if seen:
                kept = prompt.ids[: len(seen)] == seen
                assert kept is not (speaks and drops)
            text = spelled(form.name, number, reasons=reasons, in_prompt=in_prompt)
            ids = [*in_odd_tokens(tokenizer, text, rng), found.end]
            answer = tokens.result(
                request, prompt, ids, [0.0] * len(ids), reason="stop", version=0
            )
            [made] = answer.tool_calls
            assert json.loads(made.arguments) == {
                "text": f"splitted words {number}", "count": number, "on": True,
            }  # fmt: skip
            pieces = pieces_of(ids)
            assert pieces is not None
            labels = tokens.label(
                ModelCall(prompt_ids=prompt.ids, response_ids=ids, tools=[TOOL])
            )
            assert labels is not None
            check_halves(form, prompt.end, pieces, labels)
            seen = prompt.ids + ids
            again = json.dumps(json.loads(made.arguments))
            sent = made.model_copy(update={"arguments": again})
            asked = [*asked, message(answer.content, [sent]), result_of(made, "é\n")]
            asked += [ASKED] if speaks else []


def check_halves(
    form: ToolFormat, prefix: str, pieces: list[str], labels: list[Any]
) -> None:
    """Check each trained token against the spans of its characters."""
    text = "".join(pieces)
    reading = form.read(text, prefix=prefix, tools=[TOOL], end=pieces[-1])
    of_character = [s.components for s in reading.spans for _ in range(s.start, s.end)]
    at, decisions = 0, 0
    for piece, label in zip(pieces[:-1], labels[:-1], strict=True):
        covered = set(of_character[at : at + len(piece)])
        at += len(piece)
        if not is_trained(label, TOOL_CALLS) or covered <= {SELECTION, PARAMETERS}:
            continue
        decisions += 1  # the first token, which decides whether to call at all
        assert REASONING not in covered
        assert OUTPUT in covered
    assert decisions <= 1
