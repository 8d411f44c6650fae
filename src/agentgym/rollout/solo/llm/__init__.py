"""The models that agents ask.

- ``reply``: what a model may answer, and reading it: :class:`Reply`.
- ``endpoint``: an OpenAI-compatible server as such a model.
- ``resolve``: from a function, an address or ``provider:model`` to a model.
"""

from agentgym.rollout.solo.llm.reply import Llm, Reply, read_reply
from agentgym.rollout.solo.llm.resolve import open_llm

__all__ = ["Llm", "Reply", "open_llm", "read_reply"]
