"""A server that is closed while its policy does not come to an end."""

import asyncio
import signal
import threading
from concurrent.futures import Future

import openai
import pytest
from openai import OpenAI

from agentgym.core.policy import ChatRequest, ChatResult
from agentgym.engines.scripted import Reply, ScriptedPolicy
from agentgym.errors import EngineError
from agentgym.serving.server import AgentServer


class Endless(ScriptedPolicy):
    """Is asked, and answers with an error once it is closed."""

    def __init__(self) -> None:
        super().__init__(lambda _: Reply("never"))
        self.asked, self.closed = threading.Event(), threading.Event()

    async def chat(self, request: ChatRequest) -> ChatResult:
        self.asked.set()
        while not self.closed.is_set():
            await asyncio.sleep(0.01)
        raise EngineError("It was closed.")

    def close(self) -> None:
        self.closed.set()


def ask(server: AgentServer, told: Future[Exception]) -> None:
    client = OpenAI(base_url=server.url, api_key="any", max_retries=0)
    try:
        client.chat.completions.create(
            model="m", messages=[{"role": "user", "content": "Hello"}]
        )
    except openai.APIError as error:
        told.set_result(error)


@pytest.mark.parametrize("interrupted", [False, True], ids=["grace", "ctrl-c"])
def test_answers_that_do_not_end_are_cut_off(interrupted: bool) -> None:
    policy, told = Endless(), Future[Exception]()
    server = AgentServer(["m"], grace_s=60.0 if interrupted else 0.1).start(policy)
    threading.Thread(target=ask, args=(server, told), daemon=True).start()
    assert policy.asked.wait(30)
    if not interrupted:
        server.close()
    else:
        main = threading.main_thread().ident
        assert main is not None
        old = signal.signal(signal.SIGINT, signal.default_int_handler)
        try:
            threading.Timer(0.3, signal.pthread_kill, (main, signal.SIGINT)).start()
            with pytest.raises(KeyboardInterrupt):
                server.close()
        finally:
            signal.signal(signal.SIGINT, old)
    assert policy.closed.is_set()
    assert isinstance(told.result(30), openai.APIError)
