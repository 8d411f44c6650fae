"""One episode's talk with an agent, or with a workflow, of Agent Framework."""

import json
from typing import Any

from agent_framework import Agent, AgentResponse, Content, Message, Workflow
from pydantic_core import to_jsonable_python

from agentgym.integrations.agent_framework.copies import FrameworkCopies
from agentgym.integrations.agent_framework.redirect import running
from agentgym.integrations.base import Conversation
from agentgym.integrations.episode import EpisodeCut, current_episode
from agentgym.integrations.on_client.adapter import ClientLoop
from agentgym.integrations.openai_client import clients_redirected_to


class FrameworkConversation(Conversation):
    """Runs a copy of an agent in a session, or a copy of a workflow.

    Args:
        found: The agent or workflow, as its author wrote it.
        copies: Have training's client.
        loop: Has the agent's input.
    """

    def __init__(self, found: Any, copies: FrameworkCopies, loop: ClientLoop) -> None:
        self._copies = copies
        self._loop = loop
        self._has_begun = False
        self._runs: Agent | Workflow
        if isinstance(found, Workflow):
            self._runs = copies.workflow(found)
        else:
            self._runs = copies.of(found)
            self._session = self._runs.create_session()

    async def turn(self, message: str) -> str:
        """Run it to its end, through all that it waits for."""
        given = None if self._has_begun else self._loop.first_input()
        self._has_begun = True
        redirected = clients_redirected_to(self._loop.blueprint)
        with running(self._copies.of), redirected:
            return await self._run(message if given is None else given)

    async def _run(self, message: Any) -> str:
        if isinstance(self._runs, Workflow):
            ended = await self._runs.run(message)
            while waiting := ended.get_request_info_events():
                responses = {each.request_id: _answer(each.data) for each in waiting}
                ended = await self._runs.run(responses=responses)
            outputs = ended.get_outputs()
            return _text(outputs[-1]) if outputs else ""
        response = await self._runs.run(message, session=self._session)
        while requests := response.user_input_requests:
            approved = [_answer(request) for request in requests]
            response = await self._runs.run(
                Message("user", approved), session=self._session
            )
        return response.text


def _answer(asked: Any) -> Any:
    """Approve a call that waits for it; ask the scenario's user anything else."""
    if isinstance(asked, Content) and asked.type == "function_approval_request":
        return asked.to_function_approval_response(approved=True)
    episode, question = current_episode(), _text(asked)
    reply = episode.user_reply(question)
    if reply is None:
        wording = f"the user has nothing to say to: {question}"
        episode.cut_short("interrupt", wording)
        raise EpisodeCut("interrupt", wording)
    return reply


def _text(output: Any) -> str:
    """Return the text of a workflow's output."""
    if isinstance(output, str):
        return output
    if isinstance(output, AgentResponse | Message):
        return output.text
    if isinstance(output, list) and output and isinstance(output[-1], Message):
        return output[-1].text
    return json.dumps(to_jsonable_python(output, fallback=str))
