"""The model card of exported weights: where they come from, how to use them."""

from pathlib import Path

from agentgym.core.agent import AgentSpec
from agentgym.evaluate.metrics import MetricName, Metrics
from agentgym.models import hub
from agentgym.models.folder import NANO

_SHOWN: tuple[tuple[MetricName, str], ...] = (
    ("right_tool", "right tool"),
    ("right_arguments", "right arguments"),
    ("pass_1", "tasks solved (pass^1)"),
    ("tool_reliability", "tool reliability"),
)


def model_card(
    spec: AgentSpec,
    name: str,
    *,
    is_adapter: bool,
    base_model: str,
    steps: int,
    episodes: int,
    created: str,
    before: Metrics,
    after: Metrics,
) -> str:
    """Return the README of a folder of weights, as Hugging Face reads it.

    Args:
        spec: What the agent is apart from its weights.
        name: Of the agent.
        is_adapter: Whether the weights are a LoRA adapter and need their base.
        base_model: What training started from.
        steps: Policy updates.
        episodes: Training rollouts.
        created: ISO 8601.
        before: Held-out metrics before training.
        after: Held-out metrics after training.
    """
    head = ["pipeline_tag: text-generation", "tags: [agentgym, tool-calling]"]
    head.insert(0, f"library_name: {'peft' if is_adapter else 'transformers'}")
    if hub.is_id(base_model):
        head.append(f"base_model: {base_model}")
    base = _base(base_model)
    kind = f"a LoRA adapter for {base}" if is_adapter else f"trained from {base}"
    rows = "\n".join(
        f"| {label} | {_share(before, metric)} | {_share(after, metric)} |"
        for metric, label in _SHOWN
    )
    return f"""---
{"\n".join(head)}
---

# {name}

A model that calls tools, {kind}
with AgentGym by reinforcement learning on the scenario {Path(spec.scenario).name!r}:
{_plural(steps, "update")}, {_plural(episodes, "episode")}, {created}.

On {_plural(after.tasks, "held-out task")}:

| | before | after |
|---|---|---|
{rows}

## Use

{_LOADED["adapter" if is_adapter else "model"]}
It writes tool calls in Hermes form. It was measured at temperature {spec.temperature:g}
with at most {spec.max_tokens:,} tokens an answer, after this system prompt:

{_quoted(spec.system_prompt)}
"""


_SERVED = """    vllm serve {} \\
        --enable-auto-tool-choice --tool-call-parser hermes
"""
_LOADED = {
    "model": f"""With `FOLDER` as this folder:

    AutoModelForCausalLM.from_pretrained("FOLDER")
    AutoTokenizer.from_pretrained("FOLDER")

{_SERVED.format("FOLDER")}""",
    "adapter": f"""With `FOLDER` as this folder, which needs the base model beside it
(`adapter_config.json` has its name; `--format merged` makes a folder that needs none):

    AutoPeftModelForCausalLM.from_pretrained("FOLDER")
    AutoTokenizer.from_pretrained("FOLDER")

{_SERVED.format("BASE --enable-lora --lora-modules agent=FOLDER")}""",
}


def _base(model: str) -> str:
    """Return what training started from in words, without a path of this machine."""
    if model == NANO:
        return "the policy that ships with AgentGym (nano)"
    return f"`{model if hub.is_id(model) else Path(model).name}`"


def _plural(count: int, noun: str) -> str:
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def _share(metrics: Metrics, metric: MetricName) -> str:
    found = getattr(metrics, metric)
    return f"{100 * found.value:.0f} %" if found.n else "not measured"


def _quoted(text: str) -> str:
    return "\n".join(f"> {line}".rstrip() for line in text.splitlines())
