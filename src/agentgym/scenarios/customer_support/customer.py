"""Customer: a script that plays a customer, and answers the agent's questions.

The script knows facts of several kinds, e.g. the email. It recognises by keywords which
kind a question is about, since an agent may ask in any words. It answers each kind at
most twice, so that the conversation ends even if the agent only asks.
"""

import re
from collections import Counter
from collections.abc import Mapping, Sequence

KEYWORDS = {
    "email": ("mail",),
    "postcode": ("postcode", "post code", "postal", "zip"),
    "order": ("order", "purchase", "number"),
    "item": ("item", "product", "article"),
    "address": ("address", "street", "city", "where to"),
    "subject": ("subject", "complain", "about", "problem", "happened"),
    "priority": ("priority", "urgen", "important"),
}
"""Parts of words by which a question about each kind of fact is recognised."""

_QUESTION = re.compile(
    r"\?|^\s*(what|which|who|where|how|when)\b|\b(please|tell me|give me|i need)\b"
)
_CLOSING = re.compile(
    r"\belse\b|\b(any|anything|something) (more|further)\b"
    r"|\b(more|further|other|another) (help|assist|question|request)"
    r"|\bif you (need|want|have) any|\bthat (all|everything)\b"
)
"""Phrases with which an agent asks whether there is anything else."""

_MOST_ANSWERS = 2


class Customer:
    """A scripted customer for one episode.

    Args:
        facts: Answers to questions, by kind of fact. To a repeated question, the
            customer gives the next answer, or else the last one again.
        needs: Kinds of facts that the agent needs but that the customer's first message
            does not contain, in the order of need.
        later: Further requests. The customer sends the next one when the agent knows
            all needed facts and asks for nothing that the customer can answer.
    """

    def __init__(
        self,
        facts: Mapping[str, Sequence[str]],
        needs: Sequence[str],
        later: Sequence[str],
    ) -> None:
        self._facts = facts
        self._open = list(needs)
        self._later = list(later)
        self._given: Counter[str] = Counter()
        self._puzzled = False

    def reply(self, message: str) -> str | None:
        """Return the reply to a message of the agent; None ends the conversation."""
        said = message.lower()
        kinds = [k for k, words in KEYWORDS.items() if any(w in said for w in words)]
        if not self._open and _CLOSING.search(said):
            return self._next_request()
        if not _QUESTION.search(said):
            return self._after_statement(kinds)
        if "email" in kinds and "address" in kinds:
            kinds.remove("address")  # "your email address"
        known = [kind for kind in kinds if kind in self._facts]
        if not known:
            if self._open:
                return self._state(self._open[0])
            if self._later:
                return self._later.pop(0)
            return self._puzzle("i do not know.") if kinds else None
        answers = [text for kind in known[:2] if (text := self._state(kind))]
        return ", ".join(answers) or self._next_request()

    def _state(self, kind: str) -> str | None:
        if kind in self._open:
            self._open.remove(kind)
        if self._given[kind] >= _MOST_ANSWERS:
            return None
        texts = self._facts[kind]
        text = texts[min(self._given[kind], len(texts) - 1)]
        self._given[kind] += 1
        return text

    def _after_statement(self, kinds: Sequence[str]) -> str | None:
        """Return the reply to a message without a question.

        If the message mentions a kind of fact that the agent still needs, the reply is
        this fact. If the agent needs only other facts, the reply is "sorry?", but only
        once. If it needs no more facts, the reply is the next request.

        Args:
            kinds: The kinds of facts that the message mentions.
        """
        about = [kind for kind in kinds if kind in self._open]
        if about:
            return self._state(about[0])
        if self._open:
            return self._puzzle("sorry?")
        return self._next_request()

    def _next_request(self) -> str | None:
        """Return the customer's next request; None if there are no more."""
        return self._later.pop(0) if self._later else None

    def _puzzle(self, text: str) -> str | None:
        """Return ``text`` at the first call, and None at later calls."""
        if self._puzzled:
            return None
        self._puzzled = True
        return text
