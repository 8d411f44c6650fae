"""A flow, apart from the agents: making one imports a vector store, for 1.5 s."""

from typing import Any

from crewai.flow.flow import Flow, start


class Stream(Flow[Any]):
    @start()
    def go(self) -> str:
        return "gone"


flow = Stream()
