"""GrammarPath: follow an answer through a grammar, and list the allowed next tokens."""

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from agentgym.core.trajectory import Grammar
from agentgym.engines.base import Allowed
from agentgym.engines.tokens.rendering import common_prefix

if TYPE_CHECKING:
    from llguidance import LLMatcher

_WHERE = "failed to compile JSON schema: "


class GrammarNode:
    """A position in answers with the same beginning, as a node in a tree."""

    __slots__ = ("after", "allowed")

    def __init__(self) -> None:
        self.allowed: Allowed | None = None
        self.after: dict[int, GrammarNode] = {}


class GrammarPath:
    """Follows one answer token by token, and lists the tokens that may come next.

    Attributes:
        failure: Why the grammar cannot continue; empty if it can.
    """

    def __init__(
        self,
        grammar: Grammar,
        matcher: "LLMatcher",
        start: GrammarNode,
        stop_ids: frozenset[int],
        allowed: "Callable[[LLMatcher], Allowed]",
    ) -> None:
        self.grammar = grammar
        self._first = matcher
        self._matcher: LLMatcher | None = None
        self._fed: list[int] = []  # tokens that the matcher has read
        self._node = start
        self._ids: list[int] = []
        self._stop_ids = stop_ids
        self._compute = allowed
        self.failure = ""

    def advance(self, token: int) -> None:
        """Add a sampled token to the answer."""
        if token not in self._stop_ids:
            self._node = self._next(self._node, token)
            self._ids.append(token)

    def along(self, draft: Sequence[int]) -> list[Allowed]:
        """Return the tokens allowed next, and after each guessed token of ``draft``."""
        node, found = self._node, [self._at(self._node, ())]
        for count, token in enumerate(draft, 1):
            if token in self._stop_ids:
                found.append(found[-1])  # nothing is sampled after an end token
                continue
            node = self._next(node, token)
            found.append(self._at(node, draft[:count]))
        return found

    def draft(self, guess: Sequence[int], most: int) -> list[int]:
        """Return up to ``most`` likely next tokens, all of them allowed.

        Where the grammar allows only one token, the result has this token. Elsewhere it
        has the next token of ``guess``, or ends if that is missing or not allowed.
        """
        node, made, guesses = self._node, list[int](), list(guess)
        while len(made) < most:
            allowed = self._at(node, made)
            guessed = guesses[len(made)] if len(made) < len(guesses) else None
            token = allowed.only
            if token is None and guessed is not None and allowed.has(guessed):
                token = guessed
            if token is None or token in self._stop_ids:
                break
            if token != guessed:
                guesses = []
            made.append(token)
            node = self._next(node, token)
        return made

    @staticmethod
    def _next(node: GrammarNode, token: int) -> GrammarNode:
        found = node.after.get(token)
        if found is None:
            found = node.after.setdefault(token, GrammarNode())
        return found

    def _at(self, node: GrammarNode, draft: Iterable[int]) -> Allowed:
        if node.allowed is None:
            node.allowed = self._ask([*self._ids, *draft])
        return node.allowed

    def _ask(self, ids: list[int]) -> Allowed:
        """Return the tokens that are allowed after ``ids``."""
        if self._matcher is None:
            self._matcher = self._first.deep_copy()
        matcher, fed = self._matcher, self._fed
        if fed != ids[: len(fed)]:
            same = common_prefix(fed, ids)
            matcher.rollback(len(fed) - same)
            del fed[same:]
        new = ids[len(fed) :]
        matcher.consume_tokens(new)
        fed += new
        allowed = self._compute(matcher)
        if matcher.is_error() or not allowed.count:
            self.failure = reason_of(matcher.get_error()) or "no token can follow"
        return allowed


def reason_of(message: str) -> str:
    """Return the reason in an error message of llguidance, without the grammar."""
    named = message.partition(_WHERE)[2] or message.partition("<state>")[0]
    lines = named.partition("\n   1 |")[0].strip().splitlines() or [""]
    return lines[-1].removeprefix("error: ").rstrip(".")
