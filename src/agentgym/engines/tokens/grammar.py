"""Grammars: restrict an answer to a JSON schema, or to tool calls.

A request may require an answer that matches a JSON schema, or a tool call. At each
position of the answer, a token that does not fit gets probability 0, and the policy
samples from the other tokens. ``llguidance`` finds the allowed tokens in a few
microseconds per position (https://github.com/guidance-ai/llguidance). Training computes
the same allowed tokens again from the text of the grammar.
"""

import json
import re
from collections.abc import Mapping, Sequence
from copy import copy
from typing import TYPE_CHECKING, Any

from agentgym.core.formats.base import CallText
from agentgym.core.formats.detect import TemplateForm
from agentgym.core.policy import ChatRequest
from agentgym.core.trajectory import Grammar
from agentgym.engines.base import Allowed
from agentgym.engines.tokens.argument_grammars import (
    SHARED,
    STYLE,
    PythonArguments,
    TagArguments,
)
from agentgym.engines.tokens.grammar_path import GrammarNode, GrammarPath, reason_of
from agentgym.errors import GrammarError, MissingExtraError

if TYPE_CHECKING:
    from llguidance import LLMatcher, LLTokenizer
    from transformers import PreTrainedTokenizerBase

_MOST_TEXTS = 512
_MOST_NODES = 100_000
_MOST_BYTES = 2**26
_KEYWORDS = ("properties", "$defs", "definitions")
_TERMINALS = ('NL: "\\n"', "THOUGHT: /(.|\\n)*/")
_ANY = r"(.|\n)*"
_NOTES = ("description", "title", "examples", "default")
_WARNING = "WARNING"


class Grammars:
    """Writes a grammar for each request, and finds the tokens that it allows.

    The allowed tokens after a prefix are computed once, for all answers with this
    prefix. Any thread may call the methods.

    Args:
        tokenizer: The model's tokenizer.
        form: How the model's template writes tool calls.
        stop_ids: Tokens that end a response.
        vocabulary: Number of tokens for which the model computes a probability.
        constrains_calls: Whether tool calls must follow the tools' schemas even if a
            request does not require a call; text before calls stays free.
    """

    def __init__(
        self,
        tokenizer: "PreTrainedTokenizerBase",
        form: TemplateForm,
        stop_ids: frozenset[int],
        vocabulary: int,
        *,
        constrains_calls: bool = False,
    ) -> None:
        self._constrains_calls = constrains_calls
        self._tokenizer = tokenizer
        self._form = form
        self._stop_ids = stop_ids
        self._vocabulary = vocabulary
        self._made: LLTokenizer | None = None
        self._texts: dict[str, str] = {}
        self._compiled: dict[str, tuple[LLMatcher, GrammarNode]] = {}
        self._masks: dict[bytes, Allowed] = {}
        self._nodes = 0

    def of(self, request: ChatRequest, prompt_end: str) -> Grammar | None:
        """Return the grammar for a request's answer; None if any answer is allowed.

        Also None if the request requires a tool call, but no grammar can express the
        model's format of tool calls. ``prompt_end``, the last characters of the prompt,
        shows whether the prompt opens the reasoning.

        Raises:
            GrammarError: No grammar can express the required JSON schema.
            MissingExtraError: ``llguidance`` is not installed.
        """
        is_asked = request.form or request.wants_call
        if not request.tools or not (is_asked or self._constrains_calls):
            return None
        text = self._form.call_text("f")
        if request.form and (text is None or text.notation != "json"):
            raise GrammarError(
                f"This model writes its calls in the form {self._form.format.name!r}, "
                "and an answer in a JSON schema can be had in the forms hermes, json "
                "and mistral only. Ask for it by a tool, or take a model of another "
                "form."
            )
        if text is None:
            return None
        wanted = [
            self._reasoning(prompt_end),
            request.tools,
            request.form,
            request.wants_call,
            request.one_call,
            request.is_strict,
        ]
        key = json.dumps(wanted, sort_keys=True)
        if key not in self._texts:
            if len(self._texts) >= _MOST_TEXTS:
                self._texts.clear()
            self._texts[key] = self._text(request, prompt_end)
        return Grammar(text=self._texts[key], form=request.form)

    def begin(self, grammar: Grammar) -> GrammarPath:
        """Return a :class:`GrammarPath` that follows a new answer token by token."""
        if self._nodes > _MOST_NODES or len(self._masks) * self._width > _MOST_BYTES:
            self._compiled.clear()
            self._masks.clear()
            self._nodes = 0
        compiled = self._compiled.get(grammar.text)
        if compiled is None:
            compiled = self._compile(grammar.text), GrammarNode()
            self._compiled[grammar.text] = compiled
        return GrammarPath(grammar, *compiled, self._stop_ids, self._allowed)

    def replay(self, grammar: Grammar, ids: Sequence[int]) -> list[Allowed] | None:
        """Return the allowed tokens at each position of the response ``ids``."""
        path, found = self.begin(grammar), []
        for token in ids:
            allowed = path.along(())[0]
            if path.failure or not allowed.has(token):
                return None
            found.append(allowed)
            path.advance(token)
        return found

    @property
    def _width(self) -> int:
        return -(-self._vocabulary // 8)

    def _allowed(self, matcher: "LLMatcher") -> Allowed:
        bits = matcher.compute_bitmask()[: self._width]
        self._nodes += 1
        return self._masks.setdefault(bits, Allowed(bits))

    def _text(self, request: ChatRequest, prompt_end: str) -> str:
        """Return the grammar's text for a request; compile it to check it."""
        functions = [tool["function"] for tool in request.tools]
        rules = [self._rule(number, f, request) for number, f in enumerate(functions)]
        named = [(f"call{n}", f["name"]) for n, f in enumerate(functions)]
        forms = [rule for rule, name in named if name == request.form]
        several = [rule for rule, name in named if name != request.form]
        terminals = list(self._shared)
        if request.form or request.wants_call:
            parts = [self._marked([form], once=True) for form in forms]
            if several:
                parts.append(self._calls(several, once=request.one_call))
            answer = f"({' | '.join(parts)})"
        else:
            answer = f"{self._marked(several, once=False, in_text=True)}* TEXT"
            terminals += self._text_rules()
        start = f"{self._reasoning(prompt_end)} {answer}"
        whole = _whole(start, [*rules, *terminals])
        self._compile(whole)
        return whole

    def _rule(
        self, number: int, function: Mapping[str, Any], request: ChatRequest
    ) -> str:
        """Return the grammar rules for calls of one function, as strict as possible.

        Parts of the function's schema that no grammar can express are ignored: the
        arguments of a call are validated again when the call is made. ``number`` is
        part of the rules' names.

        Raises:
            GrammarError: The request requires this schema strictly, and no grammar can
                express it.
        """
        unknown = {"name": function["name"]}
        for given, lenient in ((function, False), (function, True), (unknown, True)):
            rules = self._call(number, given, lenient=lenient)
            try:
                self._compile(_whole(f"call{number}", [rules, *self._shared]))
            except GrammarError as error:
                if request.is_strict and function["name"] == request.form:
                    raise _unsupported(request.form, str(error)) from None
            else:
                return rules
        raise GrammarError(f"The calls of {function['name']!r} have no grammar.")

    def _call(self, number: int, function: Mapping[str, Any], *, lenient: bool) -> str:
        """Return the grammar rules for one call, without the marks around the call."""
        text = self._form.call_text(str(function["name"]))
        assert text is not None
        name = f"args{number}"
        parts = [*map(self._mark, text.before), name, _quoted(text.after)]
        return "\n".join(
            [
                f"call{number}: {' '.join(parts)}",
                *_arguments(text, name, function, lenient),
            ]
        )

    def _calls(self, rules: Sequence[str], *, once: bool) -> str:
        """Return the body of a grammar rule for an answer that consists of calls."""
        text = self._around
        calls = self._marked(rules, once=once)
        if once or text.separator or not text.opening:
            return calls
        return f"{calls} (NL? {calls})*"

    def _marked(
        self, rules: Sequence[str], *, once: bool, in_text: bool = False
    ) -> str:
        """Return the body of a grammar rule for one pair of marks, and calls in it.

        In some formats several calls stand between the same two marks. ``rules`` and
        ``once`` are as in :meth:`_calls`. With ``in_text``, free text may stand before
        the opening mark.
        """
        text = self._around
        calls = f"({' | '.join(rules)})"
        if text.separator and not once:
            calls = f"{calls} ({_quoted(text.separator)} {calls})*"
        mark = "text_and_mark" if in_text else self._mark(text.opening)
        opening = f"{mark} NL?" if text.opening else ""
        closing = f"NL? {self._mark(text.closing)}" if text.closing else ""
        first, last = map(_quoted, text.around)
        return f"({opening} {first} {calls} {last} {closing})"

    def _text_rules(self) -> list[str]:
        """Return the grammar rules for free text, and for free text up to a tool call.

        Free text does not contain the mark that opens a call, e.g. ``<tool_call>``. If
        the mark is ordinary text, not a special token, free text ends at the mark's
        first occurrence.
        """
        text = self._around
        marks = self._form.format.openers
        free = f"TEXT: /{_ANY}/ & ~/{_holding(marks)}/"
        if self._added(text.opening) is not None:
            return [f"text_and_mark: TEXT {self._mark(text.opening)}", free]
        marked = f"text_and_mark[lazy]: /{_ANY}{_pattern(text.opening)}/"
        if others := [mark for mark in marks if mark != text.opening]:
            marked += f" & ~/{_holding(others)}/"
        return [marked, free]

    def _reasoning(self, prompt_end: str) -> str:
        """Return the body of a grammar rule for reasoning at the start of an answer."""
        for opening, closing in self._form.format.reasoning_marks:
            begin, end = map(self._added, (opening, closing))
            if begin is None or end is None:
                continue
            thought = f"THOUGHT <[{end}]> NL* "
            if self._form.format.thinks(prompt_end):
                return thought
            if closing not in prompt_end:
                return f"(<[{begin}]> {thought})?"
        return ""

    def _mark(self, text: str) -> str:
        """Write a mark (e.g. ``<tool_call>``) for a rule, as special token or text."""
        token = self._added(text)
        return _quoted(text) if token is None else f"<[{token}]>"

    def _added(self, text: str) -> int | None:
        """Return the id of the special token with this text, or None."""
        found = self._tokenizer.get_added_vocab().get(text)
        if found is None or not self._ll.is_special_token(found):
            return None
        return int(found)

    def _compile(self, text: str) -> "LLMatcher":
        matchers = _matcher_class()
        matcher = matchers(self._ll, matchers.grammar_from_lark(text), log_level=0)
        if matcher.is_error():
            raise GrammarError(reason_of(matcher.get_error()))
        return matcher

    @property
    def _around(self) -> CallText:
        """The texts that the model's format puts around a call and its arguments."""
        text = self._form.call_text("f")
        assert text is not None
        return text

    @property
    def _shared(self) -> tuple[str, ...]:
        """Grammar rules that the rules of all calls refer to."""
        is_python = self._around.notation == "python"
        return (*_TERMINALS, *SHARED) if is_python else _TERMINALS

    @property
    def _ll(self) -> "LLTokenizer":
        """The tokenizer in llguidance's form; it is created at first use."""
        if self._made is None:
            _matcher_class()
            from llguidance.hf import from_tokenizer
            from tokenizers.decoders import ByteLevel

            # Only the tokenizer's own end token, if it ends responses: a server does
            # not know the other end tokens and would not allow them.
            own = self._tokenizer.eos_token_id
            ends = [own] if own in self._stop_ids else sorted(self._stop_ids)
            read: Any = self._tokenizer
            if re.match("Sequence.*ByteLevel", repr(read.backend_tokenizer.decoder)):
                read = copy(read)  # llguidance takes a sequence for SentencePiece's
                read._tokenizer = copy(read.backend_tokenizer)
                read._tokenizer.decoder = ByteLevel()
            vocabulary = max(self._vocabulary, len(self._tokenizer))
            self._made = from_tokenizer(read, n_vocab=vocabulary, eos_token=ends)
        return self._made


def check_form(request: ChatRequest) -> None:
    """Check that a grammar can express the JSON schema of a request in strict mode.

    Raises:
        GrammarError: No grammar can express the schema; the message says why.
        MissingExtraError: ``llguidance`` is not installed.
    """
    functions = [tool["function"] for tool in request.tools]
    for function in functions if request.form and request.is_strict else ():
        if function["name"] == request.form:
            guided = _guided(function, lenient=False)
            problem = _matcher_class().validate_grammar(f"start: %json {guided}")
            if problem and not problem.startswith(_WARNING):
                raise _unsupported(request.form, reason_of(problem))


def _unsupported(form: str, why: str) -> GrammarError:
    return GrammarError(
        f"The schema {form!r} of response_format cannot be expressed as a grammar: "
        f'{why}. Leave that part out, or set "strict": false in json_schema.'
    )


def _arguments(
    text: CallText, name: str, function: Mapping[str, Any], lenient: bool
) -> list[str]:
    """Return the grammar rules for a call's arguments."""
    if text.notation == "json":
        return [f"{name}: %json {_guided(function, lenient=lenient)}"]
    schema = closed(function.get("parameters") or {"type": "object"})
    kind = PythonArguments if text.notation == "python" else TagArguments
    return kind(name, schema).rules()


def _guided(function: Mapping[str, Any], *, lenient: bool) -> str:
    """Return the JSON schema of a function's arguments, with options for llguidance.

    The options set where the JSON has spaces. With ``lenient``, llguidance ignores
    parts of the schema that it does not support.
    """
    schema = closed(function.get("parameters") or {"type": "object"})
    style = {**STYLE, "coerce_one_of": True, "lenient": lenient}
    return json.dumps({**schema, "x-guidance": style})


def _matcher_class() -> "type[LLMatcher]":
    try:
        from llguidance import LLMatcher
    except ImportError:
        raise MissingExtraError("local", "Structured answers") from None
    return LLMatcher


def closed(schema: Any) -> Any:
    """Return a copy of a JSON schema that allows no additional properties.

    OpenAI's strict mode does the same. Where the schema itself sets
    ``additionalProperties``, its value stays. Descriptions and defaults are removed.
    """
    if isinstance(schema, list):
        return [closed(each) for each in schema]
    if not isinstance(schema, Mapping):
        return schema
    made = {
        key: {name: closed(each) for name, each in value.items()}
        if key in _KEYWORDS and isinstance(value, Mapping)
        else closed(value)
        if key in ("items", "anyOf", "oneOf", "prefixItems", "additionalProperties")
        else value
        for key, value in schema.items()
        if key not in _NOTES
    }
    if isinstance(schema.get("properties"), Mapping) and "allOf" not in schema:
        made.setdefault("additionalProperties", False)
    return made


def _whole(start: str, rules: Sequence[str]) -> str:
    return "\n".join([f"start: {start.strip()}", *rules, ""])


def _holding(marks: Sequence[str]) -> str:
    """Return a regular expression for texts that contain at least one of ``marks``."""
    return f"{_ANY}({'|'.join(map(_pattern, marks))}){_ANY}"


def _pattern(text: str) -> str:
    return re.escape(text).replace("/", "\\/")


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)
