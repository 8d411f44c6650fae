"""TemplateSettings: how to use a model's chat template."""

from typing import Any, Literal

from pydantic import Field

from agentgym.core.records import FrozenRecord

Thinking = Literal["auto", "on", "off"]
Constrain = Literal["auto", "none", "calls"]


class TemplateSettings(FrozenRecord):
    """How to use a model's chat template; the defaults use the template as it is.

    Attributes:
        tool_format: Name of the format in which the model writes tool calls; ``auto``
            detects the format.
        chat_template: The text of a template to use instead of the tokenizer's, or
            ``hermes`` for the built-in template. Empty takes the tokenizer's template.
        thinking: Whether the template asks the model to reason first; ``auto`` leaves
            that to the template.
        constrain: ``calls`` restricts the tokens of tool calls to those that the tools'
            schemas allow; text outside of calls stays free. ``none`` restricts nothing;
            ``auto`` does the same as in the model's training.
    """

    tool_format: str = "auto"
    chat_template: str = ""
    thinking: Thinking = "auto"
    chat_template_kwargs: dict[str, Any] = Field(default_factory=dict)
    constrain: Constrain = "auto"
