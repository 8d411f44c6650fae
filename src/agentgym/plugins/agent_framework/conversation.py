"""FrameworkConversation: run one episode with an Agent Framework agent or workflow."""

from typing import Any

from agent_framework import Agent, AgentResponse, Content, Message, Workflow

from agentgym.integrations.episode import current_episode
from agentgym.integrations.on_client.adapter import (
    ClientConversation,
    ClientLoop,
    text_of,
)
from agentgym.plugins.agent_framework.copies import copied, workflow_copied


class FrameworkConversation(ClientConversation):
    """Runs the user's agent, or a copy of the workflow, once per message of the user.

    An agent keeps the earlier messages in a session of the framework.
    """

    def __init__(self, found: Any, loop: ClientLoop) -> None:
        super().__init__(loop)
        self._waiting: dict[str, Any] = {}
        self._runs: Agent | Workflow
        if isinstance(found, Workflow):
            self._runs = workflow_copied(found, copied)
        else:
            agent = copied(found)
            self._runs = agent
            self._session = agent.create_session()

    async def answer(self, asked: Any) -> str:
        """Run the agent; meanwhile, answer its requests for approval or for input."""
        if isinstance(self._runs, Workflow):
            return await self._run_workflow(self._runs, asked)
        response = await self._runs.run(asked, session=self._session)
        while requests := response.user_input_requests:
            approved = [await _answer(request) for request in requests]
            response = await self._runs.run(
                Message("user", approved), session=self._session
            )
        return response.text

    async def _run_workflow(self, workflow: Workflow, message: Any) -> str:
        """Run a workflow until it ends or waits for the user; return its answer."""
        given: dict[str, Any] = {}
        for name, asked in self._waiting.items():
            given[name] = asked.create_response(message)
        ended = await (
            workflow.run(responses=given) if given else workflow.run(message)
        )
        while waiting := {
            x.request_id: x.data for x in ended.get_request_info_events()
        }:
            if all(map(_is_answer, waiting.values())):
                self._waiting = waiting
                return [_text(each.agent_response) for each in waiting.values()][-1]
            given = {name: await _answer(asked) for name, asked in waiting.items()}
            ended = await workflow.run(responses=given)
        self._waiting = {}
        outputs = ended.get_outputs()
        return _text(outputs[-1]) if outputs else ""


def _is_answer(asked: Any) -> bool:
    """Return whether a workflow's request to the user contains an agent's answer.

    A hand-off workflow sends each answer to the user in such a request.
    """
    return isinstance(getattr(asked, "agent_response", None), AgentResponse)


async def _answer(asked: Any) -> Any:
    """Return the response to a request of an agent or workflow.

    A tool call that waits for approval is approved. For a tool call that the framework
    does not run itself, the episode's tool is run. Any other request is a question,
    which the scenario's user answers.
    """
    if isinstance(asked, Content) and asked.type == "function_approval_request":
        return asked.to_function_approval_response(approved=True)
    episode = current_episode()
    if isinstance(asked, Content) and asked.type == "function_call":
        given: Any = asked.arguments or {}
        text = await episode.use_tool(asked.name or "", given, call_id=asked.call_id)
        return Content.from_function_result(call_id=asked.call_id or "", result=text)
    return episode.answer_to(_text(asked))


def _text(output: Any) -> str:
    """Return the text of a workflow's output; JSON for an object without text."""
    if isinstance(output, AgentResponse | Message):
        return output.text
    if isinstance(output, list) and output and isinstance(output[-1], Message):
        return output[-1].text
    return text_of(output)
