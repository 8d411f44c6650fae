"""ChatTemplate: render a model's chat template, and detect its tool-call format."""

from collections.abc import Callable, Mapping, Sequence
from hashlib import blake2b
from itertools import takewhile
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol

from agentgym.core.formats import FORMATS
from agentgym.core.formats.base import ToolFormat
from agentgym.core.formats.detect import (
    PROBE_TOOL,
    Message,
    TemplateForm,
    find_form,
    keeps_reasoning,
)
from agentgym.core.openai import joined_text
from agentgym.core.template_settings import TemplateSettings
from agentgym.core.tools import parse_arguments
from agentgym.errors import ModelError, PromptError
from agentgym.models.folder import NANO, base_folder, model_source, read_json
from agentgym.models.template import template_of

_SWITCHES = "enable_thinking", "thinking"
"""Template variables that switch reasoning on or off, of Qwen and of Granite."""
_SETTINGS = "tokenizer_config.json"
_ASKED: list[Message] = [{"role": "user", "content": "u"}]
_NANO_FORM = "hermes"
_SHORT = 9
"""Length of a tool call's id, in letters and digits, in Mistral's templates."""


class Templated(Protocol):
    """An object with a chat template: a tokenizer, or a FolderTemplate."""

    chat_template: Any  # a text, or a dict of texts by name

    def apply_chat_template(self, conversation: Any, tools: Any, **more: Any) -> Any:
        """Render a conversation to text."""


class FolderTemplate:
    """The chat template of a model's folder, rendered without a tokenizer."""

    def __init__(self, folder: Path, text: str = "") -> None:
        settings: dict[str, Any] = {}
        if (folder / _SETTINGS).is_file():
            settings = read_json(folder / _SETTINGS)
        self._tokens: dict[str, Any] = {}
        for name, value in settings.items():
            if name.endswith("_token"):
                token = value.get("content") if isinstance(value, dict) else value
                if token is not None:  # otherwise templates write "None"
                    self._tokens[name] = token
        file = folder / "chat_template.jinja"
        kept = file.read_text(encoding="utf-8") if file.is_file() else None
        found: Any = text or kept or settings.get("chat_template")
        if isinstance(found, list):  # several by name
            named = {each["name"]: each["template"] for each in found}
            found = named.get("tool_use") or named.get("default")
        self.chat_template: str | None = found

    def apply_chat_template(self, conversation: Any, tools: Any, **more: Any) -> str:
        """Render messages as a tokenizer of transformers does."""
        from agentgym.models.jinja import compile_template  # jinja2 is slow to import

        more.pop("tokenize")
        given = {"messages": conversation, "tools": tools, "documents": None}
        template = compile_template(self.chat_template or "")
        return template.render(**given, **self._tokens, **more)


class ChatTemplate:
    """Renders messages with a chat template; ``variables`` are the template's own."""

    def __init__(
        self,
        model: str,
        tokenizer: Templated,
        settings: TemplateSettings | None = None,
    ) -> None:
        settings = settings or TemplateSettings()
        self._tokenizer = tokenizer
        self._describes = False
        if tokenizer.chat_template is None:
            raise ModelError(
                f"The model {model!r} has no chat template. Give one: --set "
                "chat_template=FILE, or --set chat_template=hermes for one that ships "
                "with agentgym."
            )
        forced = "" if settings.tool_format == "auto" else settings.tool_format
        if forced and forced not in FORMATS:
            raise ModelError(
                f"tool_format = {forced!r} is not a form of tool calls. "
                f"Available: auto, {', '.join(FORMATS)}."
            )
        self.constrains = settings.constrain == "calls"
        self.variables: Mapping[str, Any] = dict(settings.chat_template_kwargs)
        if settings.thinking != "auto":
            switch = self._switch(model, on=settings.thinking == "on")
            self.variables = {**switch, **self.variables}
        self.form: TemplateForm = find_form(model, self._render, FORMATS, forced=forced)
        text = self.form.call_text("f")
        if self.constrains and (text is None or not text.opening):
            forms = ", ".join(filter(can_be_constrained, FORMATS))
            raise ModelError(
                f"--set constrain=calls works with calls in the forms {forms}, where a "
                f"mark opens them, and the model {model!r} writes them in the form "
                f"{self.format.name!r}: {self.form.written!r}. Give --set "
                "constrain=none, or --set chat_template=hermes."
            )
        self._describes = self._fails_without_descriptions()
        self._keeps_reasoning: bool | None = None

    @property
    def format(self) -> ToolFormat:
        """The grammar of the model's tool calls."""
        return self.form.format

    @property
    def keeps_reasoning(self) -> bool:
        """Whether the model's reasoning stays in prompts after a new user message."""
        if self._keeps_reasoning is None:
            self._keeps_reasoning = keeps_reasoning(self._render, self.format)
        return self._keeps_reasoning

    @property
    def reasons(self) -> bool:
        """Whether the model probably reasons first, judged by the template."""
        if self.form.begins_reasoning:
            return True
        asked = self._render(_ASKED, [dict(PROBE_TOOL)], prompt=True)
        for name in _SWITCHES:
            texts = self._switched(name)
            if len(set(texts)) == 2:
                return asked == texts[0]
        return not self.keeps_reasoning

    def render(
        self,
        messages: Sequence[Message],
        tools: Sequence[Message],
        *,
        prompt: bool = True,
    ) -> str:
        """Render :meth:`prepared_all` messages; ``prompt`` begins an answer."""
        try:
            return self._render(list(messages), list(tools), prompt=prompt)
        except Exception as error:  # templates may raise any exception
            raise PromptError(
                f"The chat template cannot render the messages: {error}"
            ) from error

    def prepared_all(self, messages: Sequence[Message]) -> list[Message]:
        """Convert messages to the form that the template takes.

        If it takes only one tool call per answer, an answer with several is split into
        several answers.
        """
        single = _one_by_one(messages) if self.form.one_call else messages
        return list(map(self.prepared, single))

    def prepared(self, message: Message) -> Message:
        """Convert a message to the form that the template takes."""
        # Many templates ignore content in parts, and some fail without content.
        if message.get("tool_calls"):
            calls = list(map(self._prepared_call, message["tool_calls"]))
            message = {**message, "tool_calls": calls}
        if self.form.short_ids and "tool_call_id" in message:
            short = _short_id(message["tool_call_id"])
            message = {**message, "tool_call_id": short}
        if message.get("content") is None:
            message = {**message, "content": ""}
        elif isinstance(message["content"], list):
            try:
                message = {**message, "content": joined_text(message["content"])}
            except ValueError as error:
                raise PromptError(
                    f"In a {message.get('role')!r} message {error}; the policy reads "
                    "only text."
                ) from error
        return message

    def _prepared_call(self, call: Any) -> Any:
        function = call.get("function") if isinstance(call, dict) else None
        if not isinstance(function, dict):
            return call
        if self.form.short_ids and "id" in call:
            call = {**call, "id": _short_id(call["id"])}
        given = function.get("arguments")
        if self.form.takes_objects and isinstance(given, str):
            parsed = parse_arguments(given)
            if parsed is not None:
                call = {**call, "function": {**function, "arguments": parsed}}
        return call

    def _render(
        self, messages: list[Message], tools: list[Message], *, prompt: bool
    ) -> str:
        if self._describes:
            tools = [_described(tool) for tool in tools]
        text = self._tokenizer.apply_chat_template(
            messages,
            tools=list[dict[Any, Any] | Callable[..., Any]](tools) or None,
            tokenize=False,
            add_generation_prompt=prompt,
            **self.variables,
        )
        assert isinstance(text, str)
        return text

    def _fails_without_descriptions(self) -> bool:
        """Return whether the template fails for a tool without a description."""
        function = {"name": "f", "parameters": {"type": "object", "properties": {}}}
        tools: list[Message] = [{"type": "function", "function": function}]
        try:
            self._render(_ASKED, tools, prompt=True)
        except Exception:  # noqa: BLE001 templates may raise anything
            return True
        return False

    def _switched(self, name: str) -> list[str]:
        """Render a prompt with ``name`` true, then false; [] if that fails."""
        own, texts = self.variables, []
        try:
            for value in (True, False):
                self.variables = {**own, name: value}
                texts.append(self._render(_ASKED, [dict(PROBE_TOOL)], prompt=True))
        except Exception:  # noqa: BLE001 templates may raise anything
            return []
        finally:
            self.variables = own
        return texts

    def _switch(self, model: str, *, on: bool) -> dict[str, bool]:
        """Return ``{name: on}`` for the template's variable that switches reasoning."""
        for name in _SWITCHES:
            if len(set(self._switched(name))) == 2:
                return {name: on}
        raise ModelError(
            f"thinking = {'on' if on else 'off'!r}: the chat template of {model!r} has "
            f"no switch for it (it reads neither {' nor '.join(_SWITCHES)}). Leave "
            "thinking out, or give the template's own setting in chat_template_kwargs."
        )


def can_be_constrained(form: str) -> bool:
    """Return whether a fixed text opens a call, so that sampling can restrict it."""
    text = FORMATS[form].call_text("f", FORMATS[form].example)
    return text is not None and bool(text.opening)


def _described(tool: Message) -> Message:
    """Return the tool, with an empty description if it has no description."""
    function = tool.get("function")
    if not isinstance(function, dict) or function.get("description") is not None:
        return tool
    return {**tool, "function": {**function, "description": ""}}


def _one_by_one(messages: Sequence[Message]) -> list[Message]:
    """Split answers with several calls, so that each answer has at most one call."""
    found: list[Message] = []
    left = list(messages)
    while left:
        message = left.pop(0)
        calls = message.get("tool_calls") or ()
        if len(calls) < 2:
            found.append(message)
            continue
        for number, call in enumerate(calls):
            content = "" if number else message.get("content")
            found.append({**message, "content": content, "tool_calls": [call]})
            results = takewhile(lambda each: each.get("role") == "tool", list(left))
            given = call.get("id") if isinstance(call, dict) else None
            for result in results:
                if given is not None and result.get("tool_call_id") == given:
                    found.append(result)
                    left.remove(result)
    return found


def _short_id(call_id: Any) -> str:
    """Convert any id of a tool call to nine letters and digits."""
    return blake2b(str(call_id).encode(), digest_size=8).hexdigest()[:_SHORT]


class FormReport(NamedTuple):
    """How a model writes tool calls and keeps reasoning; ``name`` may be empty."""

    name: str
    drops_reasoning: bool = False
    variables: Mapping[str, Any] = MappingProxyType({})
    reasons: bool = False
    constrains: bool = False


def form_of(model: str, given: TemplateSettings) -> FormReport:
    """Detect a model's tool-call format and reasoning; download and load nothing."""
    if model == NANO and given == TemplateSettings():
        return FormReport(_NANO_FORM)
    source = model_source(model)
    folder = Path(source)
    if not (folder / _SETTINGS).is_file():
        found = base_folder(source)
        if found is None or not (found / _SETTINGS).is_file():
            return FormReport("", constrains=given.constrain == "calls")
        folder = found
    settings = template_of(source, given)
    template = FolderTemplate(folder, settings.chat_template)
    made = ChatTemplate(model, template, settings)
    drops = settings.thinking != "off" and not made.keeps_reasoning
    return FormReport(
        made.format.name, drops, made.variables, made.reasons, made.constrains
    )
