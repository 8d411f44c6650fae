"""Grammars: which tokens an answer in a given form may consist of.

A request may ask for an answer in a JSON schema, or for a call of a tool. Then a token
that no such answer has at its place gets no probability: the distribution is that of
the other tokens. ``llguidance`` says which they are, a few microseconds each
(https://github.com/guidance-ai/llguidance). The same text of a grammar gives the same
tokens while sampling and while training on the sampled ids.
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from agentgym.core.formats.base import CallText
from agentgym.core.formats.detect import TemplateForm
from agentgym.core.policy import ChatRequest
from agentgym.core.trajectory import Grammar
from agentgym.engines.base import Allowed
from agentgym.engines.tokens.grammar_path import GrammarNode, GrammarPath, reason_of
from agentgym.engines.tokens.python_arguments import SHARED, PythonArguments
from agentgym.engines.tokens.schema_parts import STYLE
from agentgym.engines.tokens.tag_arguments import TagArguments
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


@dataclass
class _Compiled:
    """A grammar's text, compiled; ``start`` is before an answer's first token."""

    matcher: "LLMatcher"
    start: GrammarNode = field(default_factory=GrammarNode)


class Grammars:
    """Writes the grammars of requests, and follows answers through them.

    The tokens that may follow others are computed once, for all answers that begin
    with those. Any thread may ask.

    Args:
        tokenizer: Of the model.
        form: How the model's template writes tool calls.
        stop_ids: Tokens that end a response.
        vocabulary: How many tokens the model gives a probability.
        constrains_calls: Whether calls that are not asked for follow the tools' schemas
            too, with any text around them.
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
        self._compiled: dict[str, _Compiled] = {}
        self._masks: dict[bytes, Allowed] = {}
        self._nodes = 0

    def of(self, request: ChatRequest, prompt_end: str) -> Grammar | None:
        """Return the grammar that a request's answer is held to; None for none.

        A call that is asked for in a form whose calls no grammar expresses is not
        forced.

        Args:
            request: The request.
            prompt_end: The end of its prompt's text, which may open the reasoning.

        Raises:
            GrammarError: No grammar expresses the schema that was asked for.
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
        """Return the path of an answer that has no token yet."""
        if self._nodes > _MOST_NODES or len(self._masks) * self._width > _MOST_BYTES:
            self._compiled.clear()
            self._masks.clear()
            self._nodes = 0
        found = self._compiled.get(grammar.text)
        if found is None:
            found = self._compiled[grammar.text] = self._compile(grammar.text)
        return GrammarPath(
            grammar, found.matcher, found.start, self._stop_ids, self._allowed
        )

    def replay(self, grammar: Grammar, ids: Sequence[int]) -> list[Allowed] | None:
        """Return the tokens that were allowed at each place of a response.

        None if the grammar does not allow the response itself.
        """
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
        """Return a grammar, which is compiled to see whether it can be."""
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
        """Return the rules of a call of a function, as strict as they can be.

        Parts of a tool's schema that no grammar expresses are left out: its calls are
        validated when they are made.
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
        """Return the rules of a call, without the marks around it."""
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
        """Return an answer that consists of calls by these rules."""
        text = self._around
        calls = self._marked(rules, once=once)
        if once or text.separator or not text.opening:
            return calls
        return f"{calls} (NL? {calls})*"

    def _marked(
        self, rules: Sequence[str], *, once: bool, in_text: bool = False
    ) -> str:
        """Return calls that share their marks: one, or several where a form can.

        Args:
            rules: Of the calls.
            once: Whether it is one.
            in_text: Whether free text goes before them.
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
        """Return the rules of free text, alone and up to the mark that opens calls.

        A mark that is not a token of its own ends the text where it first stands.
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
        """Return the part of an answer before its call: reasoning, where it may be."""
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
        """Return a mark: its token where it has one, else its text."""
        token = self._added(text)
        return _quoted(text) if token is None else f"<[{token}]>"

    def _added(self, text: str) -> int | None:
        """Return the token that a mark is, if it stands outside of all text."""
        found = self._tokenizer.get_added_vocab().get(text)
        if found is None or not self._ll.is_special_token(found):
            return None
        return int(found)

    def _compile(self, text: str) -> _Compiled:
        matchers = _matcher_class()
        made = matchers.grammar_from_lark(text)
        matcher = matchers(self._ll, made, log_level=0)
        if matcher.is_error():
            raise GrammarError(reason_of(matcher.get_error()))
        return _Compiled(matcher)

    @property
    def _around(self) -> CallText:
        """The text around the arguments of any call."""
        text = self._form.call_text("f")
        assert text is not None
        return text

    @property
    def _shared(self) -> tuple[str, ...]:
        """The rules that those of all calls use."""
        is_python = self._around.notation == "python"
        return (*_TERMINALS, *SHARED) if is_python else _TERMINALS

    @property
    def _ll(self) -> "LLTokenizer":
        """The tokenizer as ``llguidance`` reads it; made once, when first needed."""
        if self._made is None:
            _matcher_class()
            from llguidance.hf import from_tokenizer

            # A token that ends responses and is not the tokenizer's own end would be
            # allowed here and not at a server, which does not know of it.
            own = self._tokenizer.eos_token_id
            ends = [own] if own in self._stop_ids else sorted(self._stop_ids)
            self._made = from_tokenizer(
                self._tokenizer,  # type: ignore[arg-type]
                n_vocab=max(self._vocabulary, len(self._tokenizer)),
                eos_token=ends,
            )
        return self._made


def check_form(request: ChatRequest) -> None:
    """Check that a grammar expresses the schema that a request asks for, if any.

    Raises:
        GrammarError: None does; says why.
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
    """Return the rules of a function's arguments, in the notation of a form."""
    if text.notation == "json":
        return [f"{name}: %json {_guided(function, lenient=lenient)}"]
    schema = closed(function.get("parameters") or {"type": "object"})
    if text.notation == "python":
        return PythonArguments(name, schema, patterns=not lenient).rules()
    return TagArguments(name, schema, patterns=not lenient).rules()


def _guided(function: Mapping[str, Any], *, lenient: bool) -> str:
    """Return the schema of a function's arguments, with how JSON is written."""
    schema = closed(function.get("parameters") or {"type": "object"})
    style = {**STYLE, "coerce_one_of": True, "lenient": lenient}
    return json.dumps({**schema, "x-guidance": style})


def _matcher_class() -> "type[LLMatcher]":
    try:
        from llguidance import LLMatcher
    except ImportError:
        raise MissingExtraError("local", "Answers in a form") from None
    return LLMatcher


def closed(schema: Any) -> Any:
    """Return a schema whose objects have no properties but those that it names.

    As in OpenAI's strict mode; where a schema says so itself, others may follow.
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
    """Return the pattern of a text in which a mark stands."""
    return f"{_ANY}({'|'.join(map(_pattern, marks))}){_ANY}"


def _pattern(text: str) -> str:
    return re.escape(text).replace("/", "\\/")


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)
