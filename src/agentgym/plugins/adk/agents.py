"""Read agents of Google ADK, and redirect their models and tools in an episode.

If an agent calls a tool and the current episode has a tool of the same name, the
episode's tool is run. Some of the patched parts are not public: a test fails when a
new version of ADK changes them.
"""

import json
from collections.abc import AsyncGenerator, Callable, Iterator
from functools import partial, wraps
from typing import Any, Self

from google.adk.agents import BaseAgent, LlmAgent
from google.adk.models import BaseLlm, LlmResponse
from google.adk.plugins.base_plugin import BasePlugin
from google.adk.runners import InMemoryRunner
from google.adk.tools import AgentTool, BaseTool
from google.genai import types
from pydantic import PrivateAttr
from pydantic_core import to_jsonable_python

from agentgym.core.tools import ToolSpec, parse_arguments
from agentgym.integrations.client_adapter import (
    UNREADABLE,
    ClientConversation,
    ClientFramework,
    Run,
    Settings,
    asking,
    left_out,
    spec_of,
)
from agentgym.integrations.in_place import called
from agentgym.integrations.redirect import model_for, patch_methods, replace_calls

_NAME = "adk"
_APP = "agentgym"


class AdkLlm(BaseLlm):
    """A model of ADK that sends chat completions with a client of OpenAI's."""

    _client: Any = PrivateAttr()

    @classmethod
    def on(cls, client: Any, name: str) -> Self:
        """Return a model that sends its requests with ``client``."""
        made = cls(model=name)
        made._client = client
        return made

    def as_role(self, name: str) -> "AdkLlm":
        """Return a copy that sends an agent's name with each request."""
        return self.on(self._client.as_role(name), self.model)

    async def generate_content_async(
        self, llm_request: Any, stream: bool = False
    ) -> AsyncGenerator[Any]:
        """Yield the model's whole answer."""
        config = llm_request.config
        body: dict[str, Any] = {"messages": [*_messages(llm_request)]}
        held = [tool.function_declarations or () for tool in config.tools or ()]
        for tool, own in zip(config.tools or (), held, strict=True):
            if not own:
                left_out(next(iter(tool.model_fields_set), tool))
        if tools := [_spec(each).to_openai() for some in held for each in some]:
            body["tools"] = tools
        form = config.response_json_schema or config.response_schema
        if isinstance(form, type):
            form = getattr(form, "model_json_schema")()  # noqa: B009 - a pydantic model
        elif form is not None and not isinstance(form, dict):
            form = _plain(form)
        if form is not None:
            named = {"name": "answer", "schema": form}
            body["response_format"] = {"type": "json_schema", "json_schema": named}
        answer = await self._client.chat.completions.create(model=self.model, **body)
        said = answer.choices[0].message
        parts = [types.Part(text=said.content)] if said.content else []
        for call in said.tool_calls or ():
            written = call.function.arguments or "{}"
            args = parse_arguments(written)
            args = {UNREADABLE: written} if args is None else args
            made = types.FunctionCall(id=call.id, name=call.function.name, args=args)
            parts.append(types.Part(function_call=made))
        yield LlmResponse(content=types.Content(role="model", parts=parts))


def _messages(request: Any) -> Iterator[dict[str, Any]]:
    if prompt := request.config.system_instruction:
        yield {"role": "system", "content": prompt}
    for content in request.contents:
        parts = content.parts or ()
        for part in parts:
            if (given := part.function_response) is not None:
                text = _read(given.response)
                yield {"role": "tool", "tool_call_id": given.id, "content": text}
        said = "".join(part.text or "" for part in parts if not part.thought)
        calls = [_call(x.function_call) for x in parts if x.function_call is not None]
        if content.role == "model":
            named = {"tool_calls": calls} if calls else {}
            yield {"role": "assistant", "content": said or None, **named}
        elif said:
            yield {"role": "user", "content": said}


def _call(call: Any) -> dict[str, Any]:
    given = _arguments(call.args or {})
    written = given if isinstance(given, str) else json.dumps(given)
    function = {"name": call.name, "arguments": written}
    return {"id": call.id, "type": "function", "function": function}


def _arguments(args: dict[str, Any]) -> Any:
    return args.get(UNREADABLE, args)


def _read(result: Any) -> str:
    """Return the text of a tool's result for the model."""
    if isinstance(result, dict) and result.keys() == {"result"}:
        result = result["result"]
    if isinstance(result, str):
        return result
    return json.dumps(to_jsonable_python(result, fallback=str))


def _given(tool: Any, text: str) -> Any:
    """Return an answer of the episode as callbacks of the agent would get it."""
    returns = getattr(FRAMEWORK.function(tool), "__annotations__", {}).get("return")
    return text if returns in (str, "str") else parse_arguments(text) or text


def _plain(schema: Any) -> dict[str, Any]:
    """Return a schema of Google's as a JSON schema."""
    found = schema.json_schema.model_dump(exclude_none=True, by_alias=True, mode="json")
    made: dict[str, Any] = found
    return made


def _spec(declared: Any) -> ToolSpec:
    schema = declared.parameters_json_schema
    if schema is None and declared.parameters is not None:
        schema = _plain(declared.parameters)
    known = {"type": "object", "properties": {}, **(schema or {})}
    return spec_of(declared.name, declared.description, known)


class AdkTool(BaseTool):
    """A tool that is known by its schema, whose arguments AgentGym checks."""

    def __init__(self, spec: ToolSpec, run: Any) -> None:
        super().__init__(name=spec.name, description=spec.description)
        self._spec, self._call = spec, run

    def _get_declaration(self) -> Any:
        return types.FunctionDeclaration(
            name=self.name,
            description=self.description,
            parameters_json_schema=self._spec.parameters,
        )

    async def run_async(self, *, args: dict[str, Any], tool_context: Any) -> Any:
        """Run the tool."""
        return await self._call(_arguments(args), None)


class _Unknown(BasePlugin):
    """Answers a call of a tool that an agent does not have, for the next attempt."""

    async def on_tool_error_callback(self, *, error: Any, **named: Any) -> Any:
        is_unknown = named["tool"].description == "Tool not found"
        return {"result": f"Error: {error}"} if is_unknown else None


def _running(run_async: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(run_async)
    async def routed(self: Any, *, args: Any, tool_context: Any) -> Any:
        model = getattr(getattr(tool_context, "_invocation_context", None), "agent", 0)

        async def run(_: Any) -> Any:
            own = getattr(model, "model", None)
            with asking(_NAME, own, AdkLlm):
                return await run_async(self, args=args, tool_context=tool_context)

        return await called(
            self.name,
            _arguments(args),
            run,
            partial(FRAMEWORK.passes_control, self),
            answer=partial(_given, self),
            call_id=getattr(tool_context, "function_call_id", None),
            read=_read,
        )

    return routed


class _Conversation(ClientConversation):
    async def answer(self, asked: Any) -> str:
        """Run the agent on a message; return the text of its last event."""
        runner, known = self._state, {"app_name": _APP, "user_id": "user"}
        sessions = runner.session_service
        if await sessions.get_session(session_id="one", **known) is None:
            await sessions.create_session(session_id="one", **known)
        message = types.Content(role="user", parts=[types.Part(text=asked)])
        said = ""
        run = runner.run_async(user_id="user", session_id="one", new_message=message)
        async for event in run:
            if event.is_final_response() and event.content is not None:
                said = "".join(x.text or "" for x in event.content.parts or ()) or said
        return said


class _AdkFramework(ClientFramework):
    """Agents, tools and models of ADK."""

    AGENTS, TOOLS, MODEL = BaseAgent, BaseTool, BaseLlm
    conversation = _Conversation

    def patch(self) -> None:
        replace_calls(BaseLlm, ("generate_content_async",), _NAME)
        patch_methods(BaseTool, ("run_async",), _running)
        kind: Any = LlmAgent
        resolve = kind.canonical_model.fget

        def canonical_model(self: Any) -> Any:
            other = model_for(_NAME, is_call=False, instead=self.model)
            found = resolve(self) if other is None else other
            return found.as_role(self.name) if isinstance(found, AdkLlm) else found

        kind.canonical_model = property(canonical_model)

    def model(self, client: Any, name: str) -> Any:
        return AdkLlm.on(client, name)

    def tool(self, spec: ToolSpec, run: Run) -> Any:
        return AdkTool(spec, run)

    def default_agent(
        self, name: str, model: Any, tools: list[Any], settings: Settings
    ) -> Any:
        prompt = settings.system_prompt  # a function: texts may have {variables}
        named = {"instruction": lambda _: prompt} if prompt else {}
        return LlmAgent(name=name, model=model, tools=tools, **named)

    def on_model(self, agent: Any, model: Any) -> Any:
        made = agent.clone()
        agents = [made]
        for each in agents:  # grows
            agents += each.sub_agents
            if hasattr(each, "model"):
                each.model = model
        return made

    def begin(self, agent: Any) -> Any:
        """Return a runner of an agent, with sessions of its own."""
        return InMemoryRunner(agent, app_name=_APP, plugins=[_Unknown(name=_APP)])

    def function(self, tool: Any) -> Any:
        return getattr(tool, "func", None)

    def passes_control(self, tool: Any) -> bool:
        is_theirs = type(tool).__module__.startswith("google.adk.tools.transfer")
        is_one = isinstance(tool, AgentTool) or is_theirs
        return is_one or super().passes_control(tool)

    def spec(self, tool: Any) -> ToolSpec:
        return _spec(tool._get_declaration())

    async def run(self, tool: Any, arguments: dict[str, Any]) -> Any:
        return _read(await tool.run_async(args=arguments, tool_context=None))


FRAMEWORK = _AdkFramework()
