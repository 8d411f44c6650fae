"""Find the reason in vLLM's log why vLLM ended."""

import re
from collections.abc import Iterator

_MORE, _LESS = (
    "Raise memory_share, or lower vllm.max_model_len.",
    "Lower memory_share, vllm.max_num_seqs or vllm.max_model_len.",
)
_ADVICE = {
    "no available memory for the cache": _MORE,
    "larger than the maximum number of tokens that can be stored in kv cache": _MORE,
    "larger than the available kv cache memory": _MORE,
    "free memory on device": "Something else holds the GPU's memory, or memory_share "
    "is too much: lower it.",
    "available memory on node": "Something else holds the machine's memory, or "
    "memory_share is too much: lower it.",
    "out of memory": _LESS,
    "died unexpectedly": f"If the system killed it for want of memory: {_LESS}",
}
"""Advice for messages. A key is a part of vLLM's error message, in lower case."""
_PREFIX = re.compile(
    r"^(?P<who>\((?P<process>[A-Za-z]+)[^()]* pid=\d+\) ?)?"
    r"(?:(?P<level>[A-Z]+) \d\d-\d\d [\d:.]+ \[[^\]]*\] ?)?"
)
_TRACEBACK = "Traceback (most recent call last):"
_ARGUMENTS = "vllm serve: error:"
_GONE = "died unexpectedly"
_ELSEWHERE = ("root cause", "Executor failed")
"""Words in error messages that only refer to another error."""
_WITNESSES = ("Worker", "VllmWorker", "EngineCore")
"""vLLM's processes, ordered by how much their errors explain, most first. Processes
that are not listed only report that these have ended."""
_SHOWN_LINES, _SHOWN = 8, 2000


def why_it_ended(text: str) -> str:
    """Return the error that ended vLLM, with advice for known errors.

    ``text`` is the part of the log to search. A worker's error is preferred, then one
    of the engine core, then one of the server. Of several errors of the same kind of
    process, it is the first, which caused the others. Without an error, return the
    last lines.
    """
    found = min(_errors(text), default=None, key=lambda error: error[0])
    if found is not None:
        said = f"says: {found[1][:_SHOWN]}"
    else:
        lines = [line.strip() for line in text.splitlines() if line.strip()]
        end = " | ".join(lines[-_SHOWN_LINES:])[-_SHOWN:]
        said = f"ends: {end or 'nothing'}"
    low = said.lower()
    advice = next((do for words, do in _ADVICE.items() if words in low), "")
    return f"{said.removesuffix('.')}. {advice}".rstrip()


def _errors(text: str) -> Iterator[tuple[int, str]]:
    """Yield the rank and the text of each error in a log.

    The error with the lowest rank explains best why vLLM ended.
    """
    within: set[str] = set()  # processes in a traceback; several may write at a time
    whose, rank, words = "", 0, ""
    for line in text.splitlines():
        match = _PREFIX.match(line)
        assert match is not None, "every part of it is optional"
        who, said = match["who"] or "", line[match.end() :]
        if words and who == whose and said.startswith(" ") and said.strip():
            words += f" {said.strip()}"  # an error of pydantic has several lines
            continue
        if words:
            yield rank, words
            words = ""
        is_error = match["level"] in (None, "ERROR")
        is_raised = who in within and said and not said.startswith(" ")
        if is_error and said == _TRACEBACK:
            within.add(who)
        elif is_raised or said.startswith(_ARGUMENTS) or (is_error and _GONE in said):
            within.discard(who)
            whose, rank, words = who, _rank(match["process"] or "", said), said
    if words:
        yield rank, words


def _rank(process: str, said: str) -> int:
    if any(part in said for part in _ELSEWHERE):
        return len(_WITNESSES) + 1
    if process in _WITNESSES:
        return _WITNESSES.index(process)
    return len(_WITNESSES)
