"""Write the model card of exported weights: their origin, and how to use them."""

import json
from collections.abc import Mapping
from pathlib import Path
from shlex import quote
from typing import Any

from agentgym.core.agent import AgentSpec, Trained
from agentgym.core.formats import FORMATS
from agentgym.core.template_settings import TemplateSettings
from agentgym.evaluate.metrics import MetricName, Metrics
from agentgym.evaluate.numbers import plural
from agentgym.models import hub
from agentgym.models.chat_template import form_of
from agentgym.models.folder import LORA_RANKS, NANO, adapter_folders, held_rank

_SHOWN: tuple[tuple[MetricName, str], ...] = (
    ("right_tool", "right tool"),
    ("right_arguments", "right arguments"),
    ("pass_1", "tasks solved (pass^1)"),
    ("tool_reliability", "tool reliability"),
)


def model_card(
    trained: Trained,
    form: str,
    *,
    base_model: str,
    steps: int,
    episodes: int,
    created: str,
    before: Metrics,
    after: Metrics,
) -> str:
    """Return the model card: the README of a weights folder, as on Hugging Face.

    ``form`` is ``hf`` or ``merged``, as in
    :func:`~agentgym.serving.export.export_model`. ``steps`` and ``episodes`` count the
    training's weight updates and episodes; ``created`` is its time in ISO 8601.
    ``before`` and ``after`` are metrics of held-out tasks, before and after training.
    """
    spec = trained.spec
    found = form_of(str(trained.model_path), TemplateSettings())
    rank = held_rank(trained.model_path) if form == "hf" else 0
    folders = adapter_folders(trained.model_path)
    roles = {role: folder.name for role, folder in folders.items() if role}
    head = ["pipeline_tag: text-generation", "tags: [agentgym, tool-calling]"]
    head.insert(0, f"library_name: {'peft' if rank else 'transformers'}")
    if hub.is_id(base_model):
        head.append(f"base_model: {base_model}")
    base = _base(base_model)
    kind = f"a LoRA adapter for {base}" if rank else f"trained from {base}"
    rows = "\n".join(
        f"| {label} | {_share(before, metric)} | {_share(after, metric)} |"
        for metric, label in _SHOWN
    )
    grammar = FORMATS[found.name or "hermes"]
    return f"""---
{"\n".join(head)}
---

# {trained.name}

A model that calls tools, {kind}
with AgentGym by reinforcement learning on the scenario {Path(spec.scenario).name!r}:
{plural(steps, "update")}, {plural(episodes, "rollout")}, {created}.

On {plural(after.tasks, "held-out task")}:

| | before | after |
|---|---|---|
{rows}

## Use

{_use(spec, rank, roles, grammar.vllm_parser, found.variables)}
It writes tool calls in the form `{grammar.example}`.
{_CONSTRAINED if found.constrains else ""}\
It was measured at temperature {spec.temperature:g}
with at most {spec.max_tokens:,} tokens an answer, after this system prompt:

{_quoted(spec.system_prompt)}
"""


_CONSTRAINED = """It was trained and measured with `--set constrain=calls`: each call
could only be one that the schemas of the offered tools allow. AgentGym keeps this
(`agentgym serve`, `agentgym eval --agent`, `TrainedAgent.load`). Another server, as
vLLM or Ollama, cannot take it from this folder: there a call may break its tool's
schema, and the figures above do not hold. vLLM restricts a call that a request forces,
by `tool_choice` `required` or a tool's name.
"""
_SERVED = """    vllm serve {} \\
        --enable-auto-tool-choice --tool-call-parser PARSERVARIABLES

`TrainedAgent.load(...).to_langchain(base_url="http://HOST:8000/v1")` then asks that
server, and so do the other `to_...` methods.
"""
_BASE = "BASE --enable-lora --max-lora-rank RANK --lora-modules NAME=FOLDER"
_OF_ROLES = """BASE --served-model-name NAME \\
        --enable-lora --max-lora-rank RANK --lora-modules MODULES"""
_LOADED = {
    "model": f"""With `FOLDER` as this folder:

    AutoModelForCausalLM.from_pretrained("FOLDER")
    AutoTokenizer.from_pretrained("FOLDER")

{_SERVED.format("FOLDER --served-model-name NAME")}""",
    "adapter": f"""With `FOLDER` as this folder, which needs the base model, too
(`adapter_config.json` has its name; `--format merged` makes a folder that needs none):

    AutoPeftModelForCausalLM.from_pretrained("FOLDER")
    AutoTokenizer.from_pretrained("FOLDER")

{_SERVED.format(_BASE)}""",
    "roles": f"""Each role of its team has an adapter of its own, in a folder below
`FOLDER`, this one. They need the base model, too (`adapter_config.json` has its name):

    AutoPeftModelForCausalLM.from_pretrained("FOLDER/FIRST")
    AutoTokenizer.from_pretrained("FOLDER")

{_SERVED.format(_OF_ROLES)}
The model `NAME/ROLE` is the one with the adapter of that role.
""",
}
"""Instructions to load and serve weights, by the kind of weights. Words in capitals are
placeholders; NAME is the model name in requests."""


def _use(
    spec: AgentSpec,
    rank: int,
    roles: Mapping[str, str],
    parser: str,
    variables: Mapping[str, Any],
) -> str:
    """Return instructions to load and serve the weights under the agent's name.

    ``rank`` is the rank of the LoRA adapter, 0 for full weights. ``roles`` has the
    folder name of each role's adapter. ``parser`` is the name of vLLM's tool-call
    parser, and ``variables`` are those of the chat template.
    """
    text = _LOADED["adapter" if rank else "model"]
    if roles:
        served = [f"NAME/{quote(role)}=FOLDER/{name}" for role, name in roles.items()]
        text = _LOADED["roles"].replace("MODULES", " ".join(served))
        text = text.replace("FIRST", next(iter(roles.values())))
    room = next((room for room in LORA_RANKS if room >= rank), rank)
    text = text.replace("PARSER", parser).replace("RANK", str(room))
    given = quote(json.dumps(dict(variables)))
    more = f" \\\n        --default-chat-template-kwargs {given}" if variables else ""
    text = text.replace("VARIABLES", more)
    return text.replace("NAME", quote(spec.served_name))


def _base(model: str) -> str:
    """Return the base model's name in Markdown; for a path, only its last part."""
    if model == NANO:
        return "the policy that ships with AgentGym (nano)"
    return f"`{model if hub.is_id(model) else Path(model).name}`"


def _share(metrics: Metrics, metric: MetricName) -> str:
    found = getattr(metrics, metric)
    return f"{100 * found.value:.0f} %" if found.n else "not measured"


def _quoted(text: str) -> str:
    return "\n".join(f"> {line}".rstrip() for line in text.splitlines())
