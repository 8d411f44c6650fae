"""Read the sampled tokens of a rollout: text, log-probability, and use in training."""

from pathlib import Path
from typing import Any

import orjson

from agentgym.core.trajectory import ModelCall, Trajectory
from agentgym.models.nano import nano_path
from agentgym.train.run_folder import CREDIT_FILE, RunFolder

_TOKENIZER = "tokenizer.json"
_MEASURED = "This rollout is a measurement, which is not trained on."
_NO_FILE = f"This run has no {CREDIT_FILE}, which a training step writes."
_NO_LINE = "No training step has used this rollout (yet)."


def token_texts(
    run: RunFolder, trajectory: Trajectory, *, is_train: bool
) -> dict[str, Any]:
    """Return the tokens of each model call of a rollout.

    Without a tokenizer, ``texts`` are token ids. ``logprobs`` are those at sampling;
    ``gaps`` are the learner's log-probabilities minus these, or None if not measured.
    """
    tokenizer, problem = _tokenizer(run)
    credit = read_credit(run.path / CREDIT_FILE, trajectory.rollout_id)
    calls = trajectory.model_calls
    path = run.path / CREDIT_FILE
    missing = (_NO_LINE if path.exists() else _NO_FILE) if is_train else _MEASURED
    known = credit if len(credit) == len(calls) else [{}] * len(calls)
    return {
        "problem": problem,
        "credit": "" if credit else missing,
        "calls": [
            _call(tokenizer, call, earned)
            for call, earned in zip(calls, known, strict=True)
        ],
    }


def read_credit(path: Path, rollout_id: str) -> list[dict[str, Any]]:
    """Return the training record of each model call of a rollout; [] if there is none.

    ``path`` is the run's ``credit.jsonl``.
    """
    try:
        data = path.read_bytes()
    except OSError:
        return []
    start = data.rfind(b'{"rollout": ' + orjson.dumps(rollout_id) + b",")
    end = data.find(b"\n", start)
    if start < 0 or end < 0:
        return []
    calls: list[dict[str, Any]] = orjson.loads(data[start:end])["calls"]
    return calls


def _call(tokenizer: Any, call: ModelCall, earned: dict[str, Any]) -> dict[str, Any]:
    ids = call.response_ids
    texts = [f"[{token}]" for token in ids]
    if tokenizer is not None:
        texts = [tokenizer.decode([each], skip_special_tokens=False) for each in ids]
    trained = [False] * len(ids)
    for start, end in earned.get("spans", ()):
        trained[start:end] = [True] * (end - start)
    places = [place for place, is_trained in enumerate(trained) if is_trained]
    gaps: list[float | None] = [None] * len(ids)
    if (known := earned.get("gaps")) is not None:
        for place, gap in zip(places, known or [0.0] * len(places), strict=False):
            gaps[place] = gap
    return {
        "texts": texts,
        "logprobs": call.logprobs,
        "trained": trained,
        "gaps": gaps,
        "bucket": earned.get("bucket"),
        "reason": earned.get("reason"),
        "advantage": earned.get("advantage"),
    }


def _tokenizer(run: RunFolder) -> tuple[Any, str]:
    """Return the run's tokenizer and "", or None and the reason."""
    try:
        from tokenizers import Tokenizer  # type: ignore[import-untyped,unused-ignore]
    except ImportError:
        return None, "Install agentgym-sdk[local] to see tokens as text."
    model = str(run.config().model)
    folders = [run.path / "agent" / "model", *reversed(run.checkpoints())]
    folders += [nano_path()] if model == "nano" else [Path(model).expanduser()]
    for folder in folders:
        for path in (folder / _TOKENIZER, folder / "model" / _TOKENIZER):
            if path.is_file():
                return Tokenizer.from_file(str(path)), ""
    return None, "The model's tokenizer is not in the run's folder."
