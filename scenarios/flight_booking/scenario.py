"""Flight booking: search, hold, book, change and cancel under fare rules."""

from collections.abc import Sequence
from random import Random

from agentgym import Environment, Reward, Scenario, Split, Task, Trajectory
from agentgym.core.needs import NeededCall
from agentgym.core.tools import ToolOutcome, ToolSpec, tool_specs
from agentgym.core.trajectory import ToolCall

from .desk import Desk
from .families import LEVELS, WORDS, draft

PROGRESS = 0.4
VIOLATION = -0.2
_SPARE_CALLS = {1: 1, 2: 2, 3: 3}


class FlightBookingScenario(Scenario):
    """A booking desk on SQLite; the reward reads the database."""

    name = "flight_booking"
    description = "Search, book, change and cancel flights by the rules."
    difficulty = "intermediate"
    estimated_time = "about 10 minutes on 2 cores, with a warm start"
    max_turns = 9
    splits = tuple(Split)

    def system_prompt(self) -> str:
        """Return the role and the fare rules."""
        return (
            "You are the agent of a flight desk. Use the tools, then answer in a few "
            "words. Rules: read a booking before you change or cancel it; a basic fare "
            "cannot be changed, so only read it; refund a booking of at most 24 hours, "
            "never an older one; flights abroad need a passport; 2 bags at most."
        )

    def tools(self) -> list[ToolSpec]:
        """Return the tools of the desk."""
        return tool_specs(Desk)

    def tasks(self, split: Split, seed: int, count: int) -> list[Task]:
        """Return tasks, families in turn."""
        return [self._task(split, seed, number) for number in range(count)]

    def _task(self, split: Split, seed: int, number: int) -> Task:
        family = list(LEVELS)[number % len(LEVELS)]
        identity = f"{split.value}/{family}/{seed}/{number}"
        made = draft(Random(identity), split, family)
        return Task(
            id=identity,
            split=split,
            seed=seed,
            family=family,
            level=LEVELS[family],
            instruction=made.instruction,
            initial_state=made.state,
            goal=made.goal,
        )

    def create_environment(self, task: Task) -> Desk:
        """Return a desk in the task's initial state."""
        return Desk(task.initial_state)

    def calculate_reward(
        self, task: Task, environment: Environment, trajectory: Trajectory
    ) -> Reward:
        """Score the database, the look-ups that were needed, and the rules kept.

        A success is worth 1 less a little per needless call, at least 0.5; an agent
        that has merely tried everything has none. Else each needed call
        made in order is worth its share of 0.4, which needless calls melt away; a
        broken rule costs 0.2.
        """
        assert isinstance(environment, Desk)
        needed, calls = self.needed_calls(task), trajectory.get_tool_calls()
        over = max(0, len(calls) - len(needed) - _SPARE_CALLS[task.level])
        broken = sum(call.outcome is ToolOutcome.RULE_BROKEN for call in calls)
        bookings, looked_up = self._wanted(task)
        right = environment.bookings() == bookings
        right = right and looked_up <= environment.looked_up()
        specs = {spec.name: spec for spec in self.tools()}
        made = 0
        for call in calls:
            if made < len(needed):
                step = needed[made]
                made += step.accepts(call, specs[step.tool], succeeded=False)
        tools = {call.name for call in calls}
        right_tool = sum(step.tool in tools for step in needed) / len(needed)
        if right and not broken and not (over and self._is_guessed(task, calls)):
            cost = max(-0.03 * max(0, len(calls) - len(needed)), -0.5)
            return Reward(1.0 + cost, True, {"outcome": 1.0, "cost": cost}, 1.0, 1.0)
        parts = {
            "progress": PROGRESS * made / len(needed) * max(0.0, 1.0 - over / 2),
            "rules": VIOLATION * min(broken, 2),
        }
        value = sum(parts.values())
        return Reward(value, False, parts, right_tool, made / len(needed))

    def _is_guessed(self, task: Task, calls: Sequence[ToolCall]) -> bool:
        """Return whether many calls tried each other tool, or ever new arguments."""
        wanted = [need.tool for need in self.needed_calls(task)]
        others = {spec.name for spec in self.tools()}.difference(wanted)
        different = {str((c.name, c.arguments)) for c in calls if c.name in wanted}
        guesses = len(different) - len(wanted)
        tried_all = others <= {call.name for call in calls}
        return tried_all or guesses > _SPARE_CALLS[task.level]

    def _wanted(self, task: Task) -> tuple[list[tuple[object, ...]], set[str]]:
        """Return the bookings and reads after the needed calls, on a new desk."""
        desk = Desk(task.initial_state)
        try:
            tools = {tool.spec.name: tool.function for tool in desk.tools()}
            for call in self.needed_calls(task):
                tools[call.tool](**call.arguments)
            return desk.bookings(), desk.looked_up()
        finally:
            desk.close()

    def needed_calls(self, task: Task) -> list[NeededCall]:
        """Return the calls that solve a task, in order."""
        return [NeededCall(tool, arguments) for tool, arguments in task.goal["plan"]]

    def vocabulary(self, split: Split) -> set[str]:
        """Return the cities, names and months of a split."""
        words = WORDS[split]
        cities = {city for country in words.countries for city in country}
        return cities | {*words.first_names, *words.last_names}
