"""Export a trained agent to CrewAI, as an Agent, a Task or a Crew."""

import itertools
from collections.abc import Iterator, Sequence
from typing import Any

from crewai import LLM, Agent, BaseLLM, Crew, Task
from crewai.events.types.llm_events import LLMCallType
from crewai.llms.base_llm import llm_call_context
from crewai.utilities.pydantic_schema_utils import (
    sanitize_tool_params_for_openai_strict,
)
from openai.lib._parsing import type_to_response_format_param
from pydantic import PrivateAttr

from agentgym.core.agent import Trained
from agentgym.core.background import in_background
from agentgym.core.policy import ChatRequest, Policy
from agentgym.integrations.agent_import import make
from agentgym.integrations.export import agent_and_tools
from agentgym.models.forms import answer_in_form, form_as_tool, request_in_form
from agentgym.models.served import served_name
from agentgym.plugins.crewai.copies import with_model
from agentgym.plugins.crewai.crews import default_agent
from agentgym.plugins.crewai.gateway import counted_tokens
from agentgym.plugins.crewai.quiet import silence
from agentgym.plugins.crewai.tools import BoundTool


def export(
    trained: Trained,
    *,
    tools: Sequence[Any] | None = None,
    agent: Any = None,
    base_url: str | None = None,
    api_key: str | None = None,
) -> Agent | Task | Crew:
    """Return a trained agent as a CrewAI object.

    The arguments and errors are those of ``TrainedAgent.to_crewai``.
    """
    found, origin, offered = agent_and_tools(
        trained, "to_crewai", BoundTool.of, agent=agent, tools=tools
    )
    model = _llm(trained, base_url, api_key)
    runs: Agent | Task | Crew
    if found is None:
        spec = trained.spec
        runs = default_agent(model, offered, spec.system_prompt, spec.max_turns)
        runs.respect_context_window = True  # otherwise CrewAI would exit the process
    else:
        runs = with_model(make(found, origin, llm=model, tools=offered), model)
    silence()
    return runs


def _llm(trained: Trained, base_url: str | None, api_key: str | None) -> BaseLLM:
    spec = trained.spec
    if base_url is None:
        return PolicyLLM.of(trained)
    return LLM(
        model=served_name(base_url, api_key, spec.served_name),
        provider="openai",
        base_url=base_url,
        api_key=api_key or "none",
        custom_openai=True,
        temperature=spec.temperature,
        max_completion_tokens=spec.max_tokens,
    )


class PolicyLLM(BaseLLM):
    """A CrewAI model that runs a trained model, the policy, in this process.

    A ``temperature`` of 0 always takes the most likely token. ``seed`` is the seed of
    the first request; it increases by 1 with each request.
    """

    _policy: Policy = PrivateAttr()
    _requests: Iterator[int] = PrivateAttr(default_factory=itertools.count)

    get_input_tokens_count = counted_tokens

    @classmethod
    def of(cls, trained: Trained) -> "PolicyLLM":
        """Load a trained agent's weights, and return a model that uses them."""
        spec = trained.spec
        model = cls(
            model=spec.scenario,
            temperature=spec.temperature,
            max_tokens=spec.max_tokens,
        )
        model._policy = trained.load_policy()
        return model

    def close(self) -> None:
        """Close the policy. Later requests to the policy raise EngineError."""
        self._policy.close()

    def supports_function_calling(self) -> bool:
        """Return True: the model takes tools as in OpenAI's chat completions."""
        return True

    def supports_stop_words(self) -> bool:
        """Return True: answers are cut at stop words."""
        return True

    def call(
        self,
        messages: Any,
        tools: list[dict[str, Any]] | None = None,
        *args: Any,
        **named: Any,
    ) -> Any:
        """Return the policy's answer.

        It is a text, a list of OpenAI tool calls, or an instance of ``response_model``.
        """
        return in_background(self._answer(messages, tools, *args, **named))

    async def acall(
        self,
        messages: Any,
        tools: list[dict[str, Any]] | None = None,
        *args: Any,
        **named: Any,
    ) -> Any:
        """Return the policy's answer, like :meth:`call`."""
        return await self._answer(messages, tools, *args, **named)

    async def _answer(
        self,
        messages: Any,
        tools: list[dict[str, Any]] | None,
        callbacks: Any = None,
        available_functions: Any = None,
        from_task: Any = None,
        from_agent: Any = None,
        response_model: Any = None,
    ) -> Any:
        counted = next(self._requests)
        options: dict[str, Any] = {"tools": [_as_sent(tool) for tool in tools or ()]}
        if response_model is not None:
            given = type_to_response_format_param(response_model)
            options["response_format"] = given
        asked = request_in_form(
            [dict(message) for message in self._format_messages(messages)],
            *form_as_tool(options),
            temperature=self.temperature or 0.0,
            max_tokens=int(self.max_tokens or ChatRequest.max_tokens),
            seed=(self.seed or 0) + counted,
        )
        answer: Any
        with llm_call_context():
            text = {"from_task": from_task, "from_agent": from_agent}
            self._emit_call_started_event(messages, tools, **text)
            try:
                result = await self._policy.chat(asked)
            except Exception as error:
                self._emit_call_failed_event(str(error), **text)
                raise
            if answer := answer_in_form(result.tool_calls, asked.form):
                kind = LLMCallType.LLM_CALL
                self._emit_call_completed_event(answer, kind, **text)
                return response_model.model_validate_json(answer)
            calls = [call.to_openai() for call in result.tool_calls]
            answer = calls or self._apply_stop_words(result.content or "")
            kind = LLMCallType.TOOL_CALL if calls else LLMCallType.LLM_CALL
            self._emit_call_completed_event(answer, kind, **text)
        return answer


def _as_sent(tool: dict[str, Any]) -> dict[str, Any]:
    """Return a tool with the parameter schema that the model saw in training.

    In training, CrewAI's OpenAI client makes the same changes to the schema.
    """
    function = dict(tool["function"])
    function["parameters"] = sanitize_tool_params_for_openai_strict(
        function["parameters"]
    )
    return {**tool, "function": function}
