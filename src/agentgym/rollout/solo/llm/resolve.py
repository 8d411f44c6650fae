"""From what users give as a model to a function that can be asked."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from agentgym.errors import UsageError
from agentgym.models.reference import Endpoint, resolve_model
from agentgym.models.reply import Llm
from agentgym.rollout.solo.llm.endpoint import EndpointLlm


@asynccontextmanager
async def open_llm(model: Llm | Endpoint | str) -> AsyncIterator[Llm]:
    """Yield a model function; connections that it needed are closed afterwards.

    Args:
        model: An async function; an ``Endpoint``; or what
            :func:`~agentgym.models.reference.resolve_model` takes: ``openai:NAME``,
            ``anthropic:NAME``, ``http://host:8000/v1#NAME``.

    Raises:
        UsageError: It is none of these, or its key is missing.
        ModelError: A server that should say which models it has did not.
    """
    if isinstance(model, str):
        model = await asyncio.to_thread(resolve_model, model)
    if isinstance(model, Endpoint):
        endpoint = EndpointLlm(model)
        try:
            yield endpoint
        finally:
            await endpoint.close()
    elif callable(model):
        yield model
    else:
        raise UsageError(
            f"llm is {model!r}; give an async function, an address such as "
            "'http://localhost:8000/v1', or 'openai:gpt-4.1-mini'."
        )
