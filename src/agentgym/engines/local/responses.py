"""From a response's tokens to its text, its content and its tool calls."""

from collections.abc import Sequence
from functools import cache
from hashlib import blake2b

from transformers import PreTrainedTokenizerBase

from agentgym.core.components import OPEN_CALL, find_calls, is_unended_reasoning
from agentgym.core.trajectory import RequestedCall


def parse_response(
    text: str, key: str, *, thinking: bool = False
) -> tuple[str | None, list[RequestedCall]]:
    """Split a response, without its end token, into content and tool calls.

    Args:
        text: The response.
        key: What the calls' ids are made from: the same key, the same ids.
        thinking: Whether the prompt ends in an open ``<think>``.

    Returns:
        The text outside well-formed tool calls, exactly as written, None if it is
        blank; and those calls.
    """
    calls: list[RequestedCall] = []
    content, position = "", 0
    for span in find_calls(text, thinking=thinking):
        if span.name is None or span.arguments is None:
            continue
        content += text[position : span.start]
        position = span.end
        name = f"{key}/{len(calls)}".encode()
        call_id = "call_" + blake2b(name, digest_size=9).hexdigest()
        calls.append(
            RequestedCall(id=call_id, name=span.name, arguments=span.arguments)
        )
    content += text[position:]
    return (content if content.strip() else None), calls


class Detokenizer:
    """Tells the text of tokens; ``piece`` is that of a token alone.

    It is ``thinking`` if the policy's prompts end in an open ``<think>``.
    """

    def __init__(
        self, tokenizer: PreTrainedTokenizerBase, *, thinking: bool = False
    ) -> None:
        self._tokenizer = tokenizer
        self._thinking = thinking
        self.piece = cache(lambda token: self.decode([token]))

    def decode(self, ids: list[int]) -> str:
        """Return the exact text of ``ids``, special tokens included."""
        text = self._tokenizer.decode(
            ids, skip_special_tokens=False, clean_up_tokenization_spaces=False
        )
        assert isinstance(text, str)
        return text

    def pieces(self, ids: Sequence[int]) -> list[str] | None:
        """Return the text of each token, so that the pieces join to the whole.

        A token may hold part of a character; its piece is then empty and the token
        that completes the character has all of it.

        Returns:
            None if they do not add up to the text, or if it is reasoning that the
            prompt began and the response never ended, which cannot be labelled.
        """
        whole = self.decode(list(ids))
        if self._thinking and is_unended_reasoning(whole):
            return None
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


class GrowingText:
    """The text of a response that comes token by token.

    Each token costs the same however many came before: it is decoded with no more of
    them than the last piece's, so that what depends on the neighbour (a space that
    only the first word of a text goes without) comes out as in the whole text.
    """

    def __init__(self, detokenizer: Detokenizer) -> None:
        self._decode = detokenizer.decode
        self._ids: list[int] = []
        self._told = 0
        self._text = ""

    def add(self, token: int, *, last: bool = False) -> str | None:
        """Return what one more token adds; None if it changes what was told before.

        Nothing is told while a character is unfinished, unless this is the last token.
        """
        self._ids.append(token)
        text = self._decode(self._ids)
        if text.endswith("\ufffd") and not last:
            return ""
        if not text.startswith(self._text):
            return None
        piece = text[len(self._text) :]
        if piece:
            self._ids = self._ids[self._told :]
            self._text = self._decode(self._ids)
        self._told = len(self._ids)
        return piece


class GrowingContent:
    """Turns tokens into the pieces of content that are safe to show already.

    From a ``<tool_call>`` on, or what may become one, nothing is shown: whether it
    is a call, and so no content, is known only at the end. ``sent`` counts characters.
    """

    def __init__(self, detokenizer: Detokenizer, stop_ids: frozenset[int]) -> None:
        self._text = GrowingText(detokenizer)
        self._stop_ids = stop_ids
        self._unsent = ""
        self._is_closed = False
        self.sent = 0

    def add(self, token: int) -> str:
        """Return the text to show after one more token; often empty."""
        if self._is_closed or token in self._stop_ids:
            return ""
        piece = self._text.add(token)
        shown, call, _ = (self._unsent + (piece or "")).partition(OPEN_CALL)
        self._is_closed = piece is None or bool(call)
        self._unsent = shown
        begun = [n for n in range(len(OPEN_CALL)) if shown.endswith(OPEN_CALL[:n])]
        shown = shown[: len(shown) - begun[-1]]
        if not self.sent and not shown.strip():
            return ""
        self._unsent = self._unsent[len(shown) :]
        self.sent += len(shown)
        return shown
