"""Flows, apart from the agents: making one imports a vector store, for 1.5 s."""

from typing import Any

from crewai import Crew
from crewai.flow.flow import Flow, listen, router, start
from pydantic import BaseModel

from tests.plugins.crewai.authored import job, note, person


class Words(BaseModel):
    topic: str = ""
    noted: int = 0


def _noting(task: str) -> Any:
    scribe = person("Scribe", note)
    crew = Crew(agents=[scribe], tasks=[job("Do this: {task}", scribe)])
    return crew.kickoff(inputs={"task": task})


class Stream(Flow[dict[str, Any]]):
    """Runs a crew, then another agent on its answer."""

    @start()
    def go(self) -> str:
        return str(_noting(self.state["task"]).raw)

    @listen(go)
    def close(self, said: str) -> Any:
        return person("Closer").kickoff(f"Close after {said}")


class Loop(Flow[Words]):
    """Runs a crew again until two notes are made."""

    @start("again")
    def go(self) -> None:
        _noting(self.state.topic)
        self.state.noted += 1

    @router(go)
    def is_done(self) -> str:
        return "done" if self.state.noted == 2 else "again"

    @listen("done")
    def end(self) -> Words:
        return self.state


flow = Stream()


def topic(task: Any) -> dict[str, Any]:
    return {"topic": f"topic of {task.id}"}
