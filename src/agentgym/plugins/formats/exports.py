"""Trajectories in formats of other tools: ATIF, chat messages, logs of inspect_ai.

The Agent Trajectory Interchange Format is RFC 0001 of Harbor; this is version 1.7, with
tool calls, their results, token ids and log-probabilities. Chat messages are the
fine-tuning format of OpenAI and of Hugging Face's trainers. A log of inspect_ai is a
ZIP archive with a header, a summary of each sample and the samples, in version 2 of the
format. A sample is a rollout; the rollouts of a task are its epochs.
"""

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from zipfile import ZIP_DEFLATED, ZipFile

from agentgym.core.openai import DEFAULT_AGENT
from agentgym.core.tools import ToolOutcome, parse_arguments
from agentgym.core.trajectory import (
    ModelCall,
    RequestedCall,
    ToolCall,
    Trajectory,
)
from agentgym.errors import UsageError
from agentgym.rollout.store.records import content_text
from agentgym.security.redaction import Redactor
from agentgym.version import __version__

ATIF = "ATIF-v1.7"


def atif_records(made: Trajectory) -> list[dict[str, Any]]:
    """Return a trajectory as one ATIF object; none without a model call."""
    steps = list(_steps(made))
    if not steps:
        return []
    first = made.model_calls[0]
    agent: dict[str, Any] = {"name": made.scenario or "agent", "version": __version__}
    if first.tools:
        agent["tool_definitions"] = first.tools
    numbers = made.stats()
    totals: dict[str, Any] = {"total_steps": len(steps)}
    if not numbers.uncounted_calls:
        totals["total_prompt_tokens"] = numbers.prompt_tokens
        totals["total_completion_tokens"] = numbers.response_tokens
    found = {
        "schema_version": ATIF,
        "session_id": made.rollout_id,
        "trajectory_id": f"{made.rollout_id}/{made.attempt}",
        "agent": agent,
        "steps": [{"step_id": n, **step} for n, step in enumerate(steps, 1)],
        "final_metrics": totals,
        "extra": about(made),
    }
    return [found]


def _steps(made: Trajectory) -> Iterator[dict[str, Any]]:
    """Yield ATIF steps: for each model call, its new messages, then the call itself."""
    results = iter(_atif_results(made))
    for step, messages in made.new_messages():
        if isinstance(step, ToolCall):
            continue
        for message in messages:
            role = message.get("role")
            if role in ("system", "developer", "user"):
                source = "user" if role == "user" else "system"
                text = content_text(message.get("content")) or ""
                yield {"source": source, "message": text, **_of_team(step)}
        yield _agent_step(step, next(results))


def _atif_results(made: Trajectory) -> list[list[ToolCall]]:
    """Return, for each model call, the tool calls that ran before the next one."""
    found: list[list[ToolCall]] = []
    for step in made.steps:
        if isinstance(step, ModelCall):
            found.append([])
        elif found:
            found[-1].append(step)
    return found


def _agent_step(call: ModelCall, ran: list[ToolCall]) -> dict[str, Any]:
    step: dict[str, Any] = {"source": "agent", "message": call.content or ""}
    if call.tool_calls:
        step["tool_calls"] = [_atif_call(each) for each in call.tool_calls]
    ids = {each.id for each in call.tool_calls}
    if ran:
        step["observation"] = {"results": [_atif_result(each, ids) for each in ran]}
    metrics: dict[str, Any] = {}
    if counts := call.token_counts:
        metrics["prompt_tokens"], metrics["completion_tokens"] = counts
    if call.response_ids:
        metrics["prompt_token_ids"] = call.prompt_ids
        metrics["completion_token_ids"] = call.response_ids
        metrics["logprobs"] = call.logprobs
    if metrics:
        step["metrics"] = metrics
    return {**step, "llm_call_count": 1, **_of_team(call)}


def _atif_call(asked: RequestedCall) -> dict[str, Any]:
    arguments = parse_arguments(asked.arguments)
    made = {"tool_call_id": asked.id, "function_name": asked.name}
    if arguments is None:  # the format allows only objects
        return {**made, "arguments": {}, "extra": {"malformed": asked.arguments}}
    return {**made, "arguments": arguments}


def _atif_result(ran: ToolCall, ids: set[str]) -> dict[str, Any]:
    extra = {"tool": ran.name, "outcome": ran.outcome.value}
    made: dict[str, Any] = {"content": ran.result, "extra": extra}
    return {"source_call_id": ran.id, **made} if ran.id in ids else made


def _of_team(call: ModelCall) -> dict[str, Any]:
    return {} if call.agent == DEFAULT_AGENT else {"extra": {"agent": call.agent}}


def chat_records(made: Trajectory) -> list[dict[str, Any]]:
    """Return each conversation of a trajectory as a record of ``messages``."""
    return list(_conversations(made))


def _conversations(made: Trajectory) -> Iterator[dict[str, Any]]:
    by_agent: dict[str, list[ModelCall]] = {}
    for call in made.model_calls:
        by_agent.setdefault(call.agent, []).append(call)
    for agent, calls in by_agent.items():
        for call in _last_of_each(calls):
            said: dict[str, Any] = {"role": "assistant", "content": call.content}
            if call.tool_calls:
                said["tool_calls"] = [each.to_openai() for each in call.tool_calls]
            record: dict[str, Any] = {"messages": [*call.messages, said]}
            if call.tools:
                record["tools"] = call.tools
            yield record | {"metadata": {"agent": agent, **about(made)}}


def _last_of_each(calls: list[ModelCall]) -> Iterator[ModelCall]:
    """Yield the last model call of each conversation."""
    for place, call in enumerate(calls):
        before = len(call.messages)
        if not any(
            len(later.messages) > before and later.messages[:before] == call.messages
            for later in calls[place + 1 :]
        ):
            yield call


def about(made: Trajectory) -> dict[str, Any]:
    """Return the facts about a rollout besides its steps, e.g. its reward."""
    kept = made.model_dump(
        mode="json",
        include={
            *("rollout_id", "attempt", "scenario", "task_id", "family", "level"),
            *("group", "reward", "reward_parts", "success", "right_tool"),
            *("right_arguments", "status", "reason", "duration_s"),
        },
    )
    return {key: value for key, value in kept.items() if value not in (None, "", {})}


_SCORER = "success"
_SUMMARISED = (
    *("id", "epoch", "input", "target", "scores", "metadata", "uuid"),
    *("total_time", "working_time", "model_usage"),
)
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
    error = sample["error"]
    return {
        **{name: sample[name] for name in _SUMMARISED},
        "error": error and error["message"],
        "completed": True,
        "message_count": len(sample["messages"]),
    }


def _messages(made: Trajectory) -> Iterator[dict[str, Any]]:
    """Yield the messages of a rollout, each once, with the tools' results."""
    for number, (step, messages) in enumerate(made.new_messages(), 1):
        if isinstance(step, ToolCall):
            yield _inspect_result(step, f"{made.rollout_id}-{number}")
            continue
        for message in messages:
            if message.get("role") in ("system", "developer", "user"):
                role = "user" if message["role"] == "user" else "system"
                text = content_text(message.get("content")) or ""
                yield {"role": role, "content": text, "source": "input"}
        yield _said(step, f"{made.rollout_id}-{number}")


def _said(step: ModelCall, identity: str) -> dict[str, Any]:
    return {
        "id": identity,
        "role": "assistant",
        "source": "generate",
        "content": step.content or "",
        "tool_calls": [_inspect_call(each) for each in step.tool_calls] or None,
        "model": f"agentgym/{step.agent}",
    }


def _inspect_call(asked: RequestedCall) -> dict[str, Any]:
    arguments = parse_arguments(asked.arguments)
    problem = f"not a JSON object: {asked.arguments}" if arguments is None else None
    call = {"id": asked.id, "type": "function", "function": asked.name}
    return {**call, "arguments": arguments or {}, "parse_error": problem}


def _inspect_result(ran: ToolCall, identity: str) -> dict[str, Any]:
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
