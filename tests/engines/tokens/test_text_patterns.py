"""Patterns of JSON schemas as the regular expressions of grammars."""

import re
from functools import cache
from typing import Any

import pytest
from llguidance import LLMatcher
from llguidance.hf import from_tokenizer
from transformers import AutoTokenizer

from agentgym.engines.tokens.text_patterns import whole_patterns
from agentgym.models.nano import nano_path

TEXTS = (
    *("", "a", "b", "ab", "ba", "xax", "a1", "A-1", "a/b", "a.b", "1", "a\nb", "a]b"),
    *("é", "a b", "aa", "aaa", "^a", "a|b", "[", "&&", "~~", "\\", "a\\b", "-", "_"),
)


@cache
def tokens() -> tuple[Any, Any]:
    """Return the shipped policy's tokenizer, and the same for grammars."""
    tokenizer = AutoTokenizer.from_pretrained(nano_path())
    return tokenizer, from_tokenizer(tokenizer, n_vocab=len(tokenizer))


def follows(expressions: list[str], text: str) -> bool:
    tokenizer, reader = tokens()
    ids = tokenizer.encode(text, add_special_tokens=False)
    for each in expressions:
        matcher = LLMatcher(reader, LLMatcher.grammar_from_lark(f"start: /{each}/"))
        assert not matcher.is_error(), matcher.get_error()
        if matcher.try_consume_tokens(ids) != len(ids) or not matcher.is_accepting():
            return False
    return True


@pytest.mark.parametrize(
    "pattern",
    [
        *("a", "^a", "a$", "^a$", "^a|b$", "^(a|b)$", "^a$|^b$", "", "^", "^$"),
        *(r"^\d$", r"^[\d]$", r"^\w+$", r"^[\w-]+$", "a/b", r"a\/b", "[/]"),
        *(
            r"^[^]]$",
            r"^[\]a]+$",
            r"a\.b",
            "^.$",
            "^a{2,3}$",
            r"\^a",
            r"a\|b",
            "^[|a]$",
        ),
        *(r"^[&&]+$", "^[~~]+$", r"^[\[]$", r"\\", r"[\\]", "^(?:a|b)+$", "^[^a]$"),
    ],
)
def test_a_text_follows_as_in_a_validator(pattern: str) -> None:
    [expression] = whole_patterns({"pattern": pattern})
    for text in TEXTS:
        found = re.search(pattern, text, re.ASCII) is not None
        if text.endswith("\n") or (pattern.endswith("$") and "\n" in text):
            continue  # Python's own reading of $
        assert follows([expression], text) is found, (expression, text)


@pytest.mark.parametrize("pattern", ["(?=a)b", r"(a)\1", "a^b", "(", "(^a)", r"\ba"])
def test_what_no_grammar_expresses_is_left_out(pattern: str) -> None:
    assert whole_patterns({"pattern": pattern}) == []


@pytest.mark.parametrize(
    ("kind", "good", "bad"),
    [
        ("date", "2024-02-29", "2024-02-30"),
        ("time", "23:59:59.5+01:00", "24:00:00Z"),
        ("date-time", "2026-01-31T00:00:00Z", "2026-01-31 00:00:00Z"),
        ("email", "a.b+c@mail.example.com", "a@b@c"),
        ("hostname", "a-b.example", "-a.example"),
        ("ipv4", "255.0.10.1", "256.0.10.1"),
        ("uri", "https://example.com/a?b=c#d", "example.com"),
        ("uuid", "123e4567-e89b-12d3-a456-426614174000", "123e4567"),
    ],
)
def test_formats(kind: str, good: str, bad: str) -> None:
    expressions = whole_patterns({"format": kind})
    assert follows(expressions, good)
    assert not follows(expressions, bad)
    assert not follows(expressions, "")


def test_a_text_with_both_follows_both_and_an_unknown_format_is_any_text() -> None:
    both = whole_patterns({"format": "date", "pattern": "^2026"})
    assert follows(both, "2026-01-01")
    assert not follows(both, "2025-01-01")
    assert not follows(both, "2026")
    assert whole_patterns({"format": "phone"}) == []
    assert whole_patterns({"pattern": 7, "format": ["date"]}) == []
