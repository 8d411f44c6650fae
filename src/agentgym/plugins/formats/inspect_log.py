"""write_log: rollouts as a log file of inspect_ai, which ``inspect view`` shows.

A file ``x.eval`` is a ZIP archive with a header, a summary of each sample and the
samples, in version 2 of the format (``inspect_ai.log``). A sample is a rollout; the
rollouts of a task are its epochs.
"""

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from zipfile import ZIP_DEFLATED, ZipFile

from agentgym.core.tools import ToolOutcome, parse_arguments
from agentgym.core.trajectory import ModelCall, RequestedCall, ToolCall, Trajectory
from agentgym.errors import UsageError
from agentgym.plugins.formats.chat import about
from agentgym.rollout.store.records import content_text
from agentgym.security.redaction import Redactor
from agentgym.version import __version__

_SCORER = "success"
_STOPS = {"stop": "stop", "tool_calls": "tool_calls", "length": "max_tokens"}


def write_log(path: Path, trajectories: Iterable[Trajectory]) -> int:
    """Write trajectories to a log file of inspect_ai; return how many there are."""
    if path.suffix != ".eval":
        raise UsageError(f"A log of inspect_ai ends in .eval; {path} does not.")
    redactor = Redactor.of_environment()
    epochs = Counter[str]()
    summaries: list[dict[str, Any]] = []
    scenario = ""

    def add(archive: ZipFile, name: str, value: Any) -> None:
        text = json.dumps(value, ensure_ascii=False)
        archive.writestr(name, redactor.record(text).encode(errors="replace"))

    with ZipFile(path, "x", ZIP_DEFLATED) as archive:
        for made in trajectories:
            scenario = scenario or made.scenario
            epochs[made.task_id] += 1
            sample = _sample(made, epochs[made.task_id])
            name = made.task_id.replace("/", "_")
            place = f"samples/{name}_epoch_{sample['epoch']}.json"
            add(archive, place, sample)
            summaries.append(_summary(sample))
        header = _header(scenario or "rollouts", summaries, epochs)
        parts = ("version", "eval", "plan")
        start = {name: header[name] for name in parts}
        add(archive, "_journal/start.json", start)
        add(archive, "summaries.json", summaries)
        add(archive, "header.json", header)
    return len(summaries)


def _header(
    scenario: str, summaries: list[dict[str, Any]], epochs: Counter[str]
) -> dict[str, Any]:
    now = datetime.now(UTC).isoformat(timespec="seconds")
    scored = [s["scores"][_SCORER]["value"] for s in summaries if s["scores"]]
    accuracy = sum(scored) / len(scored) if scored else 0.0
    metric: dict[str, Any] = {"name": "accuracy", "value": accuracy, "params": {}}
    score = {
        "name": _SCORER,
        "scorer": _SCORER,
        "params": {},
        "scored_samples": len(scored),
        "unscored_samples": len(summaries) - len(scored),
        "metrics": {"accuracy": metric},
    }
    return {
        "version": 2,
        "status": "success",
        "eval": {
            "eval_id": f"agentgym-{scenario}",
            "run_id": f"agentgym-{scenario}",
            "created": now,
            "task": scenario,
            "task_id": scenario,
            "task_version": 0,
            "task_attribs": {},
            "task_args": {},
            "dataset": {
                "name": scenario,
                "samples": len(epochs),
                "sample_ids": list(epochs),
                "shuffled": False,
            },
            "model": "agentgym/policy",
            "model_args": {},
            "config": {"epochs": max(epochs.values(), default=1)},
            "packages": {"agentgym": __version__},
            "scorers": [{"name": _SCORER, "metrics": [{"name": "accuracy"}]}],
        },
        "plan": {"name": "plan", "steps": [], "config": {}},
        "results": {
            "total_samples": len(summaries),
            "completed_samples": len(summaries),
            "scores": [score],
        },
        "stats": {"started_at": now, "completed_at": now, "model_usage": {}},
    }


def _sample(made: Trajectory, epoch: int) -> dict[str, Any]:
    messages = list(_messages(made))
    asked = next((m["content"] for m in messages if m["role"] == "user"), "")
    said = [m for m in messages if m["role"] == "assistant"]
    calls = made.model_calls
    scores: dict[str, Any] = {}
    if made.reward is not None:
        explanation = "" if made.reason is None else str(made.reason)
        parts = {"reward": made.reward, **made.reward_parts}
        scores[_SCORER] = {
            "value": float(bool(made.success)),
            "answer": made.answer,
            "explanation": explanation,
            "metadata": parts,
        }
    output: dict[str, Any] = {"model": "agentgym/policy", "choices": []}
    if said:
        stop = _STOPS.get(calls[-1].finish_reason, "unknown")
        output["choices"] = [{"message": said[-1], "stop_reason": stop}]
    dropped = None
    if made.reward is None:
        text = str(made.reason or "")
        dropped = {"message": text, "traceback": "", "traceback_ansi": ""}
    return {
        "id": made.task_id,
        "epoch": epoch,
        "input": asked,
        "target": "",
        "messages": messages,
        "output": output,
        "scores": scores,
        "metadata": about(made),
        "store": {},
        "events": [],
        "model_usage": {},
        "total_time": made.duration_s,
        "working_time": made.duration_s,
        "uuid": f"{made.rollout_id}/{made.attempt}",
        "error": dropped,
        "attachments": {},
    }


def _summary(sample: Mapping[str, Any]) -> dict[str, Any]:
    names = [*("id", "epoch", "input", "target", "scores", "metadata", "uuid")]
    names += ["total_time", "working_time", "model_usage"]
    error = sample["error"]
    return {
        **{name: sample[name] for name in names},
        "error": error and error["message"],
        "completed": True,
        "message_count": len(sample["messages"]),
    }


def _messages(made: Trajectory) -> Iterator[dict[str, Any]]:
    """Yield the messages of a rollout, each once, with the tools' results."""
    known: dict[str, int] = {}
    number = 0
    for step in made.steps:
        number += 1
        if isinstance(step, ToolCall):
            yield _result(step, f"{made.rollout_id}-{number}")
            continue
        for message in step.messages[known.get(step.agent, 0) :]:
            if message.get("role") in ("system", "developer", "user"):
                role = "user" if message["role"] == "user" else "system"
                text = content_text(message.get("content")) or ""
                yield {"role": role, "content": text, "source": "input"}
        known[step.agent] = len(step.messages)
        yield _said(step, f"{made.rollout_id}-{number}")


def _said(step: ModelCall, identity: str) -> dict[str, Any]:
    return {
        "id": identity,
        "role": "assistant",
        "source": "generate",
        "content": step.content or "",
        "tool_calls": [_call(each) for each in step.tool_calls] or None,
        "model": f"agentgym/{step.agent}",
    }


def _call(asked: RequestedCall) -> dict[str, Any]:
    arguments = parse_arguments(asked.arguments)
    problem = f"not a JSON object: {asked.arguments}" if arguments is None else None
    call = {"id": asked.id, "type": "function", "function": asked.name}
    return {**call, "arguments": arguments or {}, "parse_error": problem}


def _result(ran: ToolCall, identity: str) -> dict[str, Any]:
    error = None
    if ran.outcome is not ToolOutcome.OK:
        error = {"type": "unknown", "message": ran.fault or ran.outcome.value}
    return {
        "id": identity,
        "role": "tool",
        "content": ran.result,
        "tool_call_id": ran.id,
        "function": ran.name,
        "error": error,
    }
