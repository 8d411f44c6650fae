"""ResponseReader: convert a response's tokens to text, content, calls and labels."""

import json
from collections.abc import Sequence
from functools import cache
from hashlib import blake2b
from typing import Any

from transformers import PreTrainedTokenizerBase

from agentgym.core.components import OUTPUT, Components, Span, label_tokens
from agentgym.core.formats.base import Reading, ToolFormat
from agentgym.core.formats.detect import PREFIX
from agentgym.core.formats.free_text import free_text
from agentgym.core.tools import MALFORMED_CALL
from agentgym.core.trajectory import RequestedCall

_PROMPT_TOKENS = 64
"""Number of last prompt tokens to read, to see whether the prompt opens reasoning."""
_SHOWN = 300


class Detokenizer:
    """Converts token ids to text."""

    def __init__(self, tokenizer: PreTrainedTokenizerBase) -> None:
        self._tokenizer = tokenizer
        self.piece = cache(lambda token: self.decode([token]))

    def decode(self, ids: list[int]) -> str:
        """Return the exact text of ``ids``, special tokens included."""
        text = self._tokenizer.decode(
            ids, skip_special_tokens=False, clean_up_tokenization_spaces=False
        )
        assert isinstance(text, str)
        return text

    def pieces(self, ids: Sequence[int]) -> list[str] | None:
        """Split the text of a response into the text of each token.

        If a token has only a part of a character, its text is empty; the token that
        completes the character gets the whole character. Returns None if the texts of
        the tokens cannot be joined to the whole text.
        """
        whole = self.decode(list(ids))
        pieces = [self.piece(token) for token in ids]
        if "".join(pieces) == whole:
            return pieces
        pieces, growing = [], GrowingText(self)
        for count, token in enumerate(ids, 1):
            piece = growing.add(token, last=count == len(ids))
            if piece is None:
                return None
            pieces.append(piece)
        return pieces if "".join(pieces) == whole else None


class ResponseReader:
    """Parses responses in the model's tool-call format."""

    def __init__(
        self,
        tokenizer: PreTrainedTokenizerBase,
        form: ToolFormat,
        stop_ids: frozenset[int],
    ) -> None:
        self.format = form
        self.stop_ids = stop_ids
        self.detokenizer = Detokenizer(tokenizer)

    def end(self, ids: Sequence[int]) -> str:
        """Return the text of a response's end token; empty if the response has none."""
        return self.detokenizer.piece(ids[-1]) if self.is_ended(ids) else ""

    def is_ended(self, ids: Sequence[int]) -> bool:
        """Return whether the last token of a response is an end token."""
        return bool(ids) and ids[-1] in self.stop_ids

    def read(
        self, ids: Sequence[int], tools: Sequence[dict[str, Any]], *, prompt_end: str
    ) -> Reading:
        """Parse a response into text, tool calls and reasoning."""
        text = self.detokenizer.decode(list(ids))
        return self.format.read(text, prefix=prompt_end, tools=tools, end=self.end(ids))

    def label(
        self,
        prompt_ids: Sequence[int],
        ids: Sequence[int],
        tools: Sequence[dict[str, Any]],
        form: str = "",
    ) -> list[Components] | None:
        """Return the components of each token of a response.

        Components are the kinds of parts of a response, such as tool selection or
        reasoning. Returns None if the text cannot be divided among the tokens; see
        :meth:`Detokenizer.pieces`.

        For an answer with a JSON schema, ``form`` is the tool whose arguments are the
        answer's content. Free text in these arguments is labelled as output, as in
        other answers.
        """
        pieces = self.detokenizer.pieces(ids)
        if pieces is None:
            return None
        tail = self.detokenizer.decode(list(prompt_ids[-_PROMPT_TOKENS:]))
        reading = self.format.read(
            "".join(pieces), prefix=tail[-PREFIX:], tools=tools, end=self.end(ids)
        )
        spans = [*reading.spans]
        for call in reading.calls:
            if form and call.name == form:
                schema = _parameters(tools, form)
                free = free_text(reading.text, call.values, schema)
                spans += [Span(*each, OUTPUT) for each in free]
        return label_tokens(pieces, spans, ended=self.is_ended(ids))


def _parameters(tools: Sequence[dict[str, Any]], name: str) -> dict[str, Any]:
    """Return the JSON schema of a tool's arguments; empty if it has none."""
    functions = (tool.get("function", tool) for tool in tools)
    found = (each.get("parameters") for each in functions if each.get("name") == name)
    return next(found, None) or {}


def requested_calls(reading: Reading, key: str) -> list[RequestedCall]:
    """Return the tool calls of a response as the agent gets them.

    A call that cannot be parsed becomes a call of ``MALFORMED_CALL``, a tool that no
    agent has. Frameworks then answer with an error, and the model can correct itself.
    The calls' ids are hashes of ``key``, so that they repeat.
    """
    calls: list[RequestedCall] = []
    for call in reading.calls:
        name, arguments = call.name, call.arguments
        if name is None or arguments is None:
            name = MALFORMED_CALL
            written = reading.text[call.start : call.end][:_SHOWN]
            arguments = json.dumps({"written": written}, ensure_ascii=False)
        digest = blake2b(f"{key}/{len(calls)}".encode(), digest_size=9).hexdigest()
        calls.append(RequestedCall(id=f"call_{digest}", name=name, arguments=arguments))
    return calls


class GrowingText:
    """Decodes a response token by token.

    A new token is decoded together with the tokens of the last piece of text, not with
    the whole response, so that each token costs the same. The last piece is needed
    since a token's text can depend on the token before: some tokenizers omit the space
    of a text's first word.
    """

    def __init__(self, detokenizer: Detokenizer) -> None:
        self._decode = detokenizer.decode
        self._ids: list[int] = []
        self._shown = 0
        self._text = ""

    def add(self, token: int, *, last: bool = False) -> str | None:
        """Return the text that one more token adds.

        It is empty while a character is incomplete, unless this is the last token.
        Returns None if the token changes text that was already returned.
        """
        self._ids.append(token)
        text = self._decode(self._ids)
        if text.endswith("\ufffd") and not last:
            return ""
        if not text.startswith(self._text):
            return None
        piece = text[len(self._text) :]
        if piece:
            self._ids = self._ids[self._shown :]
            self._text = self._decode(self._ids)
        self._shown = len(self._ids)
        return piece


class GrowingContent:
    """Converts the tokens of a response to text that can be streamed to a client.

    Text is held back from the mark that opens a tool call (e.g. ``<tool_call>``), and
    from the possible beginning of such a mark: only the end of the response shows
    whether it is a call. ``sent`` is the number of characters returned so far.
    """

    def __init__(self, reader: ResponseReader, prompt_end: str) -> None:
        self._text = GrowingText(reader.detokenizer)
        self._format = reader.format
        self._stop_ids = reader.stop_ids
        self._prompt_end = prompt_end
        self._whole = ""
        self._is_broken = False
        self.sent = 0

    def add(self, token: int) -> str:
        """Return the text to stream after one more token; often empty."""
        if self._is_broken or token in self._stop_ids:
            return ""
        piece = self._text.add(token)
        if piece is None:
            self._is_broken = True
            return ""
        self._whole += piece
        safe = self._format.safe_content(self._whole, prefix=self._prompt_end)
        shown = safe[self.sent :]
        if not self.sent and not shown.strip():
            return ""
        self.sent += len(shown)
        return shown
