"""Replace secrets in texts before they are written to disk or shown.

Secrets are the values of environment variables with a name like ``API_KEY``, or with a
name in the list ``AGENTGYM_SECRETS``, and texts in the key formats of providers.
"""

import functools
import json
import logging
import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from typing import Any, TextIO, cast

# Environment variable with the names of further secret variables, comma-separated.
VARIABLE = "AGENTGYM_SECRETS"
GONE = "[redacted]"

# If a text is shortened, search this many characters after the cut for secrets too.
_READ = 2**16
# Minimum length of a secret; shorter values would also be found in ordinary text.
_LEAST = 8
_LOOSE = "utf-8", "surrogateescape"
_WORD = 12  # A secret shorter than this is only replaced where it is a whole word
_NAMED = re.compile(
    r"(?:^|_)(?:(?:API|ACCESS|PRIVATE|SECRET)?_?KEYS?|APIKEY|TOKEN|SECRETS?|PASSWORD"
    r"|PASSWD|PASSPHRASE|PASS|PWD|CREDENTIALS?|CONNECTION_STRING|DSN)(?:_|$)",
    re.IGNORECASE,
)
_ORDINARY = re.compile(
    r"(?:^|_)(?:MODEL|VERSION|REGION|ZONE|HOST|URL|PORT|NAME|LEVEL|PATH|DIR|FOLDER"
    r"|FILE|HOME|ENDPOINT|MODE|USER|EMAIL|PROJECT|AGENTGYM)(?:_|$)",
    re.IGNORECASE,
)
_QUERIED = ("key", "api_key", "apikey", "token", "access_token", "secret")
_QUERY = r"[^\s&\"'\\\[#]{6,}"
_PEM = (
    r"-BEGIN [A-Z ]*PRIVATE KEY-----"
    r"(?:[\s\S]{0,20000}?-----END [A-Z ]*KEY-----|(?:[A-Za-z0-9+/=\s]|\\+[nr])*)"
)
_HEADED = (
    ("(?i:authori)", "z", "ation"),
    ("AUTHORI", "Z", "ATION"),
    ("(?i:api)", "-", "(?i:key)"),
)
_HEADER = (
    r"\\*[\"']?\s*[:=]\s*\\*[\"']?"
    r"(?:(?:Basic|Bearer|Digest|Token) ([\w.~+/=-]{8,})|((?=\S*[\d=])[\w.~+/=-]{8,}))"
)
# Regular expression of JSON escapes for characters that a secret may contain.
_ESCAPED = re.compile(r"\\(?:/|u00[2-7])")
# Regular expression of a URL with a password.
_URL = r"://[^\s/@:\"'\\]*:([^\s/@\"'\\]+)(?=@)"
# Key formats. Each is a regular expression in three parts, which follow each other. The
# second part is a single rare character. A text is first searched only for these
# characters, which takes 3 ns per character of text. The first part must have a fixed
# length. If the last part has a group, only the group is the secret.
_SHAPES: tuple[tuple[str, str, str], ...] = (
    # OpenAI, Anthropic, OpenRouter and many who follow them
    (r"\bsk", "-", r"(?=[\w-]*\d)[A-Za-z0-9_-]{20,}"),
    (r"\b[rs]k", "_", r"(?:live|test)_[A-Za-z0-9]{16,}"),  # Stripe
    (r"\bhf", "_", r"[A-Za-z0-9]{30,}"),  # Hugging Face
    (r"\brpa", "_", r"[A-Za-z0-9]{30,}"),  # RunPod
    (r"\bgsk", "_", r"[A-Za-z0-9]{30,}"),  # Groq
    (r"\bxai", "-", r"[A-Za-z0-9]{40,}"),
    (r"\blsv2", "_", r"[a-z]{2}_[A-Za-z0-9_]{30,}"),  # LangSmith
    (r"\bgh[opsur]", "_", r"[A-Za-z0-9]{36,}"),  # GitHub
    (r"\bgithub_pat", "_", r"[A-Za-z0-9_]{30,}"),
    (r"\bglpat", "-", r"[A-Za-z0-9_-]{20,}"),  # GitLab
    (r"\bA[KS]", "I", r"A[0-9A-Z]{16}\b"),  # AWS
    (r"\bA", "I", r"za[A-Za-z0-9_-]{35}"),  # Google
    (r"\bxox[abeoprs]", "-", r"[A-Za-z0-9-]{10,}"),  # Slack
    (r"\bnpm", "_", r"[A-Za-z0-9]{36}"),
    (r"\bpypi", "-", r"[A-Za-z0-9_-]{50,}"),
    (r"\bS", "G", r"\.[A-Za-z0-9_-]{16,}\.[A-Za-z0-9_-]{16,}"),  # SendGrid
    (r"\bey", "J", r"[A-Za-z0-9_-]{8,}\.eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]*"),
    (r"\b", "B", r"earer ([\w.~+/-]{16,}=*)"),
    (r"\b", "b", r"earer ([\w.~+/-]{16,}=*)"),
    ("---", "-", _PEM),
    *((f"[?&]{name}", "=", f"({_QUERY})") for name in _QUERIED),
    *((before, anchor, f"{after}{_HEADER}") for before, anchor, after in _HEADED),
)
# Second parts of `_SHAPES` that are frequent characters. Each has a pattern of
# the characters that must be next to it, so that few places in a text are searched
# further.
_BESIDE = {"-": "(?<=[kitabeoprsI-]-)", "_": "(?<=[kfa2opsurtm]_)", "b": "(?=earer )"}
_HEADERS = frozenset({"authorization", "proxy-authorization", "x-api-key", "api-key"})
# Names of JSON fields from which a text could be decoded, such as token ids.
_TOKENS = frozenset(
    {
        *("prompt_token_ids", "token_ids", "prompt_ids", "response_ids", "logprobs"),
        *("prompt_logprobs", "routed_experts"),
    }
)


class Redactor:
    """Replaces secrets in texts by placeholders such as ``[redacted: API_KEY]``.

    ``values`` are the secrets, by the names of their variables.
    """

    def __init__(self, values: Mapping[str, str]) -> None:
        known = sorted(values.items(), key=lambda item: -len(item[1]))
        self._plain = [_plainest(value) for _, value in known]
        self._forms = [
            (re.compile(_spelt(value)), f"[redacted: {name}]") for name, value in known
        ]
        self._forms += [(form, GONE) for form in _forms()]

    @classmethod
    def of_environment(cls, more: Mapping[str, str] | None = None) -> "Redactor":
        """Return a redactor for the secrets in this process's environment."""
        return _known((*_secrets_of(os.environ), *(more or {}).items()))

    def finds(self, text: str) -> bool:
        """Return quickly whether a text or JSON possibly contains a secret."""
        if _any_form().search(text) is not None:
            return True
        if "@" in text and _forms()[0].search(text) is not None:
            return True
        return any(plain in text for plain in self._plain)

    def text(self, text: str) -> str:
        """Return a text with its secrets replaced by placeholders."""
        return self.replaced(text, lambda _, mask: mask)

    def replaced(self, text: str, by: Callable[[str, str], str]) -> str:
        """Replace each secret by ``by(secret, placeholder)``."""
        if not self.finds(text):
            return text
        for form, mask in self._forms:
            text = form.sub(functools.partial(_exchanged, by, mask), text)
        return text

    def json(self, value: Any) -> Any:
        """Return a JSON value with the secrets in its strings replaced."""
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, list | tuple):
            return [self.json(each) for each in value]
        if isinstance(value, dict):
            return {self.json(k): self._member(k, v) for k, v in value.items()}
        return value

    def _member(self, key: Any, value: Any) -> Any:
        if isinstance(value, str) and str(key).lower() in _HEADERS:
            return GONE if len(value) >= _LEAST else value
        return self.json(value)

    def written(self, text: str) -> str:
        """Replace the secrets in a text; in JSON, also those that are escaped."""
        return self._rewritten(text, lambda value: value)

    def record(self, text: str) -> str:
        """Replace the secrets in a JSON record of model calls.

        Token ids and log-probabilities of a record with a secret are removed too, since
        it could be decoded from them.
        """
        return self._rewritten(text, _without_tokens)

    def _rewritten(self, text: str, also: Callable[[Any], Any]) -> str:
        if not self.finds(text) and _ESCAPED.search(text) is None:
            return text
        try:
            value = json.loads(text)
        except (ValueError, RecursionError):
            return self.text(text)
        clean = self.json(value)
        # A repeated key hides the first one, so the values alone do not suffice.
        is_clean = clean == value and not self.finds(text)
        return text if is_clean else json.dumps(also(clean))


def redacted(text: str) -> str:
    """Return a text with the secrets of this process's environment replaced."""
    return Redactor.of_environment().text(text)


def beginning(text: str, most: int) -> str:
    """Return a text's first ``most`` characters; replace secrets, also cut ones."""
    return redacted(text[: most + _READ])[:most]


def quoted(value: object, most: int = 80) -> str:
    """Return the ``repr`` of a value without secrets, cut to ``most`` characters."""
    return beginning(repr(value), most)


def without_secrets(words: Iterable[str]) -> list[str]:
    """Return the words of a command line, with secret values replaced.

    Those are of options with a secret's name (``--api-key VALUE``, ``hub.token=VALUE``)
    and passwords in URLs.
    """
    shown: list[str] = []
    is_secret = False
    for word in words:
        name, equals, value = word.partition("=")
        if is_secret:
            word, is_secret = GONE, False
        elif _NAMED.search(re.sub(r"[-.]", "_", name.lstrip("-"))):
            is_secret = word.startswith("-") and not equals
            word = f"{name}={GONE}" if equals and value else word
        shown.append(re.sub(r"(?<=://)[^\s/@]+(?=@)", GONE, redacted(word)))
    return shown


def new_key() -> str:
    """Return a new random key in a format that a Redactor always replaces."""
    import secrets

    return f"sk-agentgym0-{secrets.token_urlsafe(24)}"


def looks_secret(name: str, value: str) -> bool:
    """Return whether a variable in ``.env`` looks like a key, by name and value."""
    letters, digits = re.search("[A-Za-z]", value), re.search("[0-9]", value)
    is_random = letters and digits and re.fullmatch(r"[^\s/]{16,}", value)
    return bool(is_random) and _ORDINARY.search(name) is None


@contextmanager
def redacted_output() -> Iterator[None]:
    """Context manager that replaces secrets in Python's stdout and stderr."""
    out, err = map(RedactedStream, (sys.stdout, sys.stderr))
    with redirect_stdout(cast(TextIO, out)), redirect_stderr(cast(TextIO, err)):
        yield


class RedactedStream:
    """A text stream that replaces secrets in each text that is written."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        """Write a text with its secrets replaced; return the original text's length."""
        self._stream.write(redacted(text))
        return len(text)

    def writelines(self, lines: Iterable[str]) -> None:
        """Write texts with their secrets replaced."""
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        """Return an attribute of the wrapped stream."""
        return getattr(self._stream, name)


class LogFilter(logging.Filter):
    """Replaces secrets in log records and their tracebacks; keeps all records."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Replace the secrets in a record; return True, to keep the record."""
        redactor = Redactor.of_environment()
        try:
            text = record.getMessage()
        except Exception:  # noqa: BLE001 - the handler of the record reports it
            return True
        record.msg, record.args = redactor.text(text), None
        if record.exc_info and not record.exc_text:
            record.exc_text = logging.Formatter().formatException(record.exc_info)
        if record.exc_text:
            record.exc_text = redactor.text(record.exc_text)
        return True


def get_logger(name: str) -> logging.Logger:
    """Return the logger with this name, which replaces secrets in its records."""
    logger = logging.getLogger(name)
    if not any(isinstance(each, LogFilter) for each in logger.filters):
        logger.addFilter(LogFilter())
    return logger


def _secrets_of(variables: Mapping[str, str]) -> list[tuple[str, str]]:
    """Return the names and values of the environment variables that are secrets."""
    further = {name.strip() for name in variables.get(VARIABLE, "").split(",")}
    return [
        (name, value.strip())
        for name, value in variables.items()
        if (name in further or _NAMED.search(name))
        and name != VARIABLE
        and _can_be_one(value.strip())
    ]


def _can_be_one(value: str) -> bool:
    is_path = value.startswith(("/", "~", "./")) and os.path.exists(
        os.path.expanduser(value)
    )
    return len(value) >= _LEAST and not is_path and not value.isspace()


@functools.lru_cache(maxsize=16)
def _known(values: tuple[tuple[str, str], ...]) -> Redactor:
    return Redactor(dict(values))


@functools.cache
def _forms() -> tuple[re.Pattern[str], ...]:
    """Return the patterns of all key formats, the URL pattern first."""
    return tuple(map(re.compile, (_URL, *map("".join, _SHAPES))))


@functools.cache
def _any_form() -> re.Pattern[str]:
    """Return a single, fast pattern that finds all key formats in :data:`_SHAPES`."""
    after: dict[str, list[str]] = {}
    for before, rare, rest in _SHAPES:
        after.setdefault(rare, []).append(f"(?<={before}{rare})(?={rest})")
    ways = (
        f"{rare}{_BESIDE.get(rare, '')}(?:{'|'.join(rests)})"
        for rare, rests in after.items()
    )
    return re.compile("|".join(ways))


def _exchanged(by: Callable[[str, str], str], mask: str, found: re.Match[str]) -> str:
    if not found.lastindex:
        return by(found[0], mask)
    whole, offset = found[0], found.start()
    start, end = found.span(found.lastindex)
    return whole[: start - offset] + by(found[1], mask) + whole[end - offset :]


def _plainest(value: str) -> str:
    """Return the longest part of a secret that JSON and URLs never escape."""
    return max(re.split(r"[^A-Za-z0-9_.~-]", value), key=len)


def _spelt(value: str) -> str:
    """Return a pattern that finds a secret unchanged, in JSON, or encoded in a URL."""
    ways = [value]
    for plain in (True, False):
        inner = value
        for _ in range(3):
            inner = json.dumps(inner, ensure_ascii=plain)[1:-1]
            ways.append(inner)
    found = "|".join(map(re.escape, sorted(set(ways), key=len, reverse=True)))
    found += f"|{_in_address(value)}"
    return rf"(?<![^\W_])(?:{found})(?![^\W_])" if len(value) < _WORD else found


def _in_address(value: str) -> str:
    """Return a pattern that finds a secret, even if it is percent-encoded in a URL."""
    parts = []
    for character in value:
        part = re.escape(character)
        if re.match(r"[A-Za-z0-9_.~-]", character) is None:
            coded = "".join(f"%{byte:02X}" for byte in character.encode(*_LOOSE))
            part = f"(?:{part}|(?i:{coded}))" if character != " " else r"(?:\ |\+|%20)"
        parts.append(part)
    return "".join(parts)


def _without_tokens(value: Any) -> Any:
    """Remove token ids and log-probabilities from a record; add numbers of tokens."""
    if isinstance(value, list):
        return [_without_tokens(each) for each in value]
    if not isinstance(value, dict):
        return value
    counts = {}
    if isinstance(value.get("prompt_ids"), list) and "response_ids" in value:
        counts = {
            f"{what}_tokens": len(value[f"{what}_ids"])
            for what in ("prompt", "response")
            if value[f"{what}_ids"]
        }
    return {
        name: ([] if isinstance(each, list) else None)
        if name in _TOKENS
        else _without_tokens(each)
        for name, each in value.items()
    } | counts
