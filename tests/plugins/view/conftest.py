"""A made run, and a server that shows it."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from agentgym.rollout.store.store import Store
from agentgym.train.run_folder import RunFolder, list_runs
from tests.plugins.view.made_run import fill, make_run

Ask = Callable[..., httpx.Response]


@pytest.fixture
def run(tmp_path: Path) -> RunFolder:
    """A finished run with four rollouts."""
    made = make_run(tmp_path / "runs" / "demo", result=True)
    with Store(made.path / "rollouts.db") as store:
        fill(store)
    return made


@pytest.fixture
def server(tmp_path: Path, run: RunFolder) -> Iterator[Any]:
    """The viewer of the folder of runs, which answers."""
    from agentgym.plugins.view.server import ViewServer

    with ViewServer(lambda: list_runs(tmp_path / "runs")) as made:
        yield made.start()


@pytest.fixture
def ask(server: Any) -> Ask:
    """Ask the server for a path below its API, with its token."""

    def get(path: str, **query: Any) -> httpx.Response:
        headers = {"X-Agentgym-Token": server.token}
        return httpx.get(f"{server.base}/api/{path}", params=query, headers=headers)

    return get
