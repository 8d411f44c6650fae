"""Routes: find the hand-offs by which a team reaches the agent with a needed tool."""

import json
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from agentgym.core.json_schema import properties
from agentgym.core.policy import ChatRequest
from agentgym.scenarios.tool_tasks.stubs import example_arguments


class TeamMember(NamedTuple):
    """An agent of a team, with the names of the tools that its requests offer."""

    role: str
    tools: frozenset[str]


class Move(NamedTuple):
    """A hand-off: an answer that may pass control to another agent.

    Attributes:
        tool: The tool that the answer calls; empty if the answer is an agent's name.
        argument: The argument that names the agent; empty if the tool has none.
        value: The argument's value, or the answer's text.
    """

    tool: str
    argument: str
    value: str


@dataclass
class Routes:
    """Records the hand-offs between a team's agents, and the agents they reached.

    Attributes:
        own: Names of the scenario's tools, which are not hand-offs.
        addressee: Name of the tool argument that names the agent to hand over to; empty
            if the framework has none.
        roles: Names of the agents.
        answers: Names of tools whose calls are an agent's answers in a form.
        ways: For each agent, its possible hand-offs. The value of a hand-off is the
            agent that it reached, or None if it was not tried yet.
    """

    own: frozenset[str]
    addressee: str
    roles: Sequence[str]
    answers: frozenset[str] = frozenset()
    ways: dict[TeamMember, dict[Move, TeamMember | None]] = field(default_factory=dict)

    def place_of(self, request: ChatRequest) -> TeamMember:
        """Return the agent that sent the request, and record its possible hand-offs."""
        names = (tool["function"]["name"] for tool in request.tools)
        place = TeamMember(request.session.split("/")[-1], frozenset(names))
        known = self.ways.setdefault(place, {})
        for move in self._moves(request):
            known.setdefault(move, None)
        return place

    def untried(self, place: TeamMember) -> Move | None:
        """Return the hand-off with which ``place`` explores the team further.

        If ``place`` has a hand-off that was not tried yet, this is it. Otherwise it is
        the first hand-off on a known route to an agent with such a hand-off. None if no
        such route is known.
        """
        for first, at in [(None, place), *self._reached(place)]:
            for move, reached in self.ways[at].items():
                if reached is None:
                    return first or move
        return None

    def towards(self, place: TeamMember, tool: str) -> Move | None:
        """Return the first hand-off on the shortest route to an agent with a tool.

        The route begins at ``place``. None if no known hand-offs reach such an agent.
        """
        for first, at in self._reached(place):
            if tool in at.tools:
                return first
        return None

    def offers(self, tool: str) -> bool:
        """Return whether a known agent has a tool."""
        return any(tool in place.tools for place in self.ways)

    def arguments(self, request: ChatRequest, move: Move, text: str) -> dict[str, Any]:
        """Return the arguments of the call that makes a hand-off.

        ``request`` offers the tool that makes the hand-off. Arguments that describe the
        task get the value ``text``.
        """
        functions = (tool["function"] for tool in request.tools)
        function = next(each for each in functions if each["name"] == move.tool)
        schema = function.get("parameters") or {}
        made = example_arguments(schema)
        made |= {name: text for name in made if _is_text(schema, name)}
        return made | ({move.argument: move.value} if move.argument else {})

    def _reached(self, place: TeamMember) -> Iterator[tuple[Move, TeamMember]]:
        """Yield the agents that known hand-offs reach from ``place``, nearest first.

        Each comes with the first hand-off on the route to this agent.
        """
        seen = {place}
        waiting = deque((move, to) for move, to in self.ways[place].items() if to)
        while waiting:
            first, at = waiting.popleft()
            if at in seen:
                continue
            seen.add(at)
            yield first, at
            waiting.extend((first, to) for to in self.ways[at].values() if to)

    def _moves(self, request: ChatRequest) -> Iterator[Move]:
        for tool in request.tools:
            function = tool["function"]
            if function["name"] not in self.own:
                yield from self._calls(function)
        if not request.tools:
            said = json.dumps(request.messages[-1], ensure_ascii=False)
            named = [role for role in self.roles if role in said]
            if len(named) > 1:
                yield from (Move("", "", role) for role in named)

    def _calls(self, function: Mapping[str, Any]) -> Iterator[Move]:
        name = function["name"]
        named = properties(function.get("parameters"))
        if self.addressee in named:
            text = " ".join((function.get("description") or "").split())
            roles = [role for role in self.roles if role in text]
            yield from (Move(name, self.addressee, role) for role in roles)
            return
        for argument, schema in named.items():
            if choices := schema.get("enum"):
                yield from (Move(name, argument, str(choice)) for choice in choices)
                return
        yield Move(name, "", "")


def _is_text(schema: Mapping[str, Any], name: str) -> bool:
    part = properties(schema).get(name, {})
    constrained = {"enum", "format", "pattern", "const", "maxLength"} & part.keys()
    return part.get("type") == "string" and not constrained
