"""Compares the prompts of an agent with the context length of its model."""

from collections.abc import Sequence
from pathlib import Path

from agentgym.core.config import TrainingConfig
from agentgym.core.trajectory import ModelCall
from agentgym.errors import AgentGymError, ModelError
from agentgym.models.chat_template import ChatTemplate, FolderTemplate
from agentgym.models.folder import CONFIG_FILE, base_folder, model_source, read_json
from agentgym.models.template import template_of

_TOKENIZER = "tokenizer.json"
_LEAST_ANSWER = 16
"""Tokens that an answer needs, at least: a short call has about as many."""


def compare_with_context(
    config: TrainingConfig, calls: Sequence[ModelCall]
) -> tuple[str, str]:
    """Compare the prompts of model calls with the context length of the run's model.

    Args:
        config: Names the model.
        calls: Of a trial; answers and tool results in them are made up.

    Returns:
        Why the agent cannot be trained with this model, and a note;
        each is empty if there is nothing to say, or if the model's files are not on
        this machine, or cannot be read.
    """
    try:
        lengths, context = _lengths(config, calls)
    except (AgentGymError, OSError, ValueError):  # whatever loads the model says why
        return "", ""
    if not lengths or max(lengths) + _LEAST_ANSWER <= context:
        return "", ""
    than = f"than the {context:,} that {config.model} reads"
    remedy = "Choose a model that reads more: --model FOLDER_OR_ID"
    if min(lengths) + _LEAST_ANSWER > context:
        why = (
            f"Its shortest prompt has {min(lengths):,} tokens, more {than}, answer "
            f"included. {remedy}, or shorten its system prompt and its tools."
        )
        return why, ""
    note = (
        f"In the trial its longest prompt had {max(lengths):,} tokens, more {than}, "
        f"answer included: such episodes are cut there. {remedy}."
    )
    return "", note


def _lengths(
    config: TrainingConfig, calls: Sequence[ModelCall]
) -> tuple[list[int], int]:
    """Return the tokens of each call's prompt, and the model's context length."""
    from tokenizers import Tokenizer

    source = model_source(config.model)
    folder = base_folder(source)
    if folder is None:
        return [], 0
    has_tokenizer = (Path(source) / _TOKENIZER).is_file()
    own = Path(source) if has_tokenizer else folder
    try:
        tokenizer = Tokenizer.from_file(str(own / _TOKENIZER))
    except Exception as error:  # tokenizers has no class of its own for it
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
    encoded = tokenizer.encode_batch(texts, add_special_tokens=False)
    return ([len(each.ids) for each in encoded] if context else []), context
