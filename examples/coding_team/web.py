"""A person in a web app: the team's questions wait for an HTTP request.

uv run python examples/coding_team/web.py openai:gpt-4.1-mini
"""

import asyncio
import sys
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

from agentgym.plugins.team.solving.solve import TeamSession, chat_models


@dataclass
class Work:
    """One problem that the team works on.

    Attributes:
        lines: What happened so far.
        question: The question that waits for an answer; None if there is none.
        solution: The result; None while the team works.
    """

    lines: list[str] = field(default_factory=list)
    question: dict[str, Any] | None = None
    solution: dict[str, Any] | None = None
    answer: "asyncio.Future[str | None] | None" = None
    task: "asyncio.Task[None] | None" = None

    async def human(self, question: dict[str, Any]) -> str | None:
        """Keep a question, and wait for its answer."""
        self.question = question
        self.answer = asyncio.get_running_loop().create_future()
        try:
            return await self.answer
        finally:
            self.question = self.answer = None


def make_app(models: Any) -> web.Application:
    """Return the app, for a chat model of each role."""
    works: list[Work] = []

    def find(request: web.Request) -> Work:
        number = int(request.match_info["number"])
        if not 1 <= number <= len(works):
            raise web.HTTPNotFound(text=f"There is no problem {number}.")
        return works[number - 1]

    async def start(request: web.Request) -> web.Response:
        body = await request.json()
        if not isinstance(body.get("problem"), str):
            raise web.HTTPBadRequest(text='Send {"problem": "Write a function …"}.')
        work = Work()
        works.append(work)

        async def solve() -> None:
            try:
                with TeamSession(
                    models,
                    files=body.get("files", {}),
                    human=work.human,
                    listener=lambda e: work.lines.append(
                        f"{e.role}: {e.tool} {e.text}"
                    ),
                ) as session:
                    work.solution = (await session.ask(body["problem"])).record()
            except Exception as error:  # noqa: BLE001 - bad input: the page shows why
                work.solution = {"outcome": "stopped", "error": str(error)}

        work.task = asyncio.create_task(solve())
        return web.json_response({"number": len(works)})

    async def show(request: web.Request) -> web.Response:
        work = find(request)
        shown = {"lines": work.lines, "question": work.question}
        return web.json_response({**shown, "solution": work.solution})

    async def answer(request: web.Request) -> web.Response:
        work = find(request)
        if work.answer is None:
            raise web.HTTPConflict(text="No question waits for an answer.")
        work.answer.set_result((await request.json())["answer"])
        return web.json_response({})

    app = web.Application()
    app.router.add_post("/problems", start)
    app.router.add_get("/problems/{number:\\d+}", show)
    app.router.add_post("/problems/{number:\\d+}/answer", answer)
    return app


if __name__ == "__main__":
    if len(sys.argv) != 2:
        raise SystemExit("Name a model: web.py openai:gpt-4.1-mini")
    web.run_app(make_app(chat_models(sys.argv[1])[0]), host="127.0.0.1", port=8321)
