"""Compare the prompts of an agent with the context length of its model."""

from collections.abc import Sequence
from pathlib import Path

from agentgym.core.config import TrainingConfig
from agentgym.core.task import Split
from agentgym.core.trajectory import ModelCall
from agentgym.errors import AgentGymError, ModelError
from agentgym.models.chat_template import ChatTemplate, FolderTemplate
from agentgym.models.folder import CONFIG_FILE, base_folder, model_source, read_json
from agentgym.models.reference import is_remote
from agentgym.models.template import template_of
from agentgym.scenarios.base import Scenario
from agentgym.scenarios.task_lists import make_tasks, tools_of

_LOOKED_AT = 32
_TOKENIZER = "tokenizer.json"
_TOKENIZER_SETTINGS = "tokenizer_config.json"
# Minimum number of tokens for an answer: about the length of a short tool call.
_LEAST_ANSWER = 16


def compare_with_context(
    config: TrainingConfig, episodes: Sequence[Sequence[ModelCall]]
) -> tuple[str, str]:
    """Compare the prompts of episodes with the context length of the run's model.

    Returns two texts: an error if all prompts are too long for the model, and a warning
    if only some are. Both are empty if all prompts fit, or if the model's files are not
    on this machine or cannot be read.
    """
    try:
        lengths, context = _lengths(config, [c for calls in episodes for c in calls])
        first, _ = _lengths(config, [calls[0] for calls in episodes if calls])
    except (AgentGymError, OSError, ValueError):  # loading the model will report it
        return "", ""
    if not lengths or max(lengths) + _LEAST_ANSWER <= context:
        return "", ""
    begins_too_long = min(first) + _LEAST_ANSWER > context
    place, tokens = "longest", max(lengths)
    end = "such rollouts are cut there"
    if begins_too_long:
        place, tokens = "first", min(first)
        end = "a rollout ends there, unless the agent sends a shorter prompt next"
    found = (
        f"In the trial its {place} prompt had {tokens:,} tokens, with the answer more "
        f"than the {context:,} that {config.model} reads"
    )
    remedy = "Choose a model that reads more: --model FOLDER_OR_ID"
    if min(lengths) + _LEAST_ANSWER > context:
        return f"{found}. {remedy}, or shorten its system prompt and its tools.", ""
    return "", f"{found}: {end}. {remedy}."


def prompt_notes(config: TrainingConfig, scenario: Scenario) -> list[str]:
    """Return a warning, in a list, if prompts exceed the model's context."""
    if config.agent.reference is not None or is_remote(config.model):
        return []
    try:
        usual = scenario.tools()
        first = [
            ModelCall(
                messages=[
                    {"role": "system", "content": scenario.system_prompt()},
                    {"role": "user", "content": task.instruction},
                ],
                tools=[s.to_openai() for s in usual or tools_of(scenario, task)],
            )
            for task in make_tasks(scenario, Split.TEST, config.seed, _LOOKED_AT)
        ]
        lengths, context = _lengths(config, first)
    except Exception:  # noqa: BLE001 - the scenario's own code; others report it
        return []
    long = sum(length + _LEAST_ANSWER > context for length in lengths)
    if not long:
        return []
    note = (
        f"The first prompts of {long} of {len(lengths)} tasks, with their tools, have "
        f"up to {max(lengths):,} tokens, and {config.model} reads {context:,}, answer "
        "included: such attempts end before the model is called. Choose a model that "
        "reads more: --model FOLDER_OR_ID."
    )
    return [note]


def _lengths(
    config: TrainingConfig, calls: Sequence[ModelCall]
) -> tuple[list[int], int]:
    """Return each call's prompt length, and the model's context length, in tokens.

    The first list is empty if the model's files are not on this machine, or do not
    contain the context length.
    """
    from tokenizers import Tokenizer

    source = model_source(config.model)
    folder = base_folder(source)
    if folder is None:
        return [], 0
    has_tokenizer = (Path(source) / _TOKENIZER).is_file()
    own = Path(source) if has_tokenizer else folder
    try:
        tokenizer = Tokenizer.from_file(str(own / _TOKENIZER))
    except Exception as error:  # tokenizers has no exception class of its own
        raise ModelError(f"The tokenizer in {own} cannot be read: {error}") from error
    given = template_of(source, config.template)
    template = ChatTemplate(
        config.model, FolderTemplate(own, given.chat_template), given
    )
    texts = [
        template.render(list(map(template.prepared, call.messages)), call.tools)
        for call in calls
    ]
    model = read_json(folder / CONFIG_FILE)
    text_part = model.get("text_config") or model
    context = int(text_part.get("max_position_embeddings") or 0)
    if (own / _TOKENIZER_SETTINGS).is_file():
        limit = read_json(own / _TOKENIZER_SETTINGS).get("model_max_length")
        context = min(context, int(limit or context))
    encoded = tokenizer.encode_batch(texts, add_special_tokens=False)
    return ([len(each.ids) for each in encoded] if context else []), context
