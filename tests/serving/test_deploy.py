"""``Trainer.deploy``: a handle on a server in this process."""

from pathlib import Path

import openai
import pytest
from openai import OpenAI

from agentgym import Trainer
from agentgym.errors import UsageError
from tests.serving.agents import shipped_agent


@pytest.mark.slow
def test_a_deployed_agent_answers_until_it_is_closed(tmp_path: Path) -> None:
    agent = shipped_agent(tmp_path / "made")
    agent.save("mine")
    with Trainer().deploy("mine", api_key="k") as server:
        client = OpenAI(base_url=server.url, api_key="k", max_retries=0)
        assert server.models == ("mine@1", "mine", "coding")
        graph = agent.to_langchain(tools=[], base_url=server.url, api_key="k")
        assert graph.invoke({"messages": [("user", "Thanks")]})["messages"][-1].text
        assert client.models.list().data[0].id == "mine@1"
    with pytest.raises(openai.APIConnectionError):
        client.models.list()
    server.close()


async def test_autogen_agents_are_answered_by_a_deployed_one(tmp_path: Path) -> None:
    agent = shipped_agent(tmp_path / "made")
    with Trainer().deploy(agent, api_key="k") as server:
        exported = agent.to_autogen(tools=[], base_url=server.url, api_key="k")
        assert (await exported.run(task="Thanks")).messages[-1].to_text()


@pytest.mark.slow
async def test_crewai_agents_are_answered_by_a_deployed_one(tmp_path: Path) -> None:
    from crewai import Agent

    agent = shipped_agent(tmp_path / "made")
    with Trainer().deploy(agent, api_key="k") as server:
        exported = agent.to_crewai(tools=[], base_url=server.url, api_key="k")
        assert isinstance(exported, Agent)
        assert (await exported.kickoff_async("Thanks")).raw


def test_other_targets_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="No target is named 'cloud'; there is: local"):
        Trainer().deploy(shipped_agent(tmp_path / "made"), target="cloud")
