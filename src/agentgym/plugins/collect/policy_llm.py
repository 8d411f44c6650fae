"""PolicyLlm: use a policy in this process as the model of rollouts."""

from typing import Any

from agentgym.core.config import TrainingConfig
from agentgym.core.policy import Policy
from agentgym.integrations.episode import current_episode
from agentgym.models.forms import until_stop
from agentgym.rollout.gateway.protocol import GatewaySettings, ProxyCall
from agentgym.rollout.gateway.upstream import chat_request, completion_body

_UNSET = TrainingConfig.model_fields
_SETTINGS = GatewaySettings(val_temperature=None, max_tokens=10**9)


class PolicyLlm:
    """Answers a rollout's model calls with a policy, like the gateway in training.

    ``temperature`` and ``max_tokens`` are used for calls that do not set them.
    """

    def __init__(
        self,
        policy: Policy,
        *,
        temperature: float = _UNSET["eval_temperature"].default,
        max_tokens: int = _UNSET["max_tokens"].default,
    ) -> None:
        self._policy = policy
        self._usual = {"temperature": temperature, "max_tokens": max_tokens}

    async def __call__(
        self, messages: list[dict[str, Any]], **options: Any
    ) -> dict[str, Any]:
        """Return a chat completion with exact token ids."""
        episode = current_episode()
        call = ProxyCall(
            rollout_id=episode.rollout_id,
            attempt_id=episode.attempt,
            mode="val",
            path="chat/completions",
            agent="",
            index=episode.turns,
            body={"messages": messages, **self._usual, **options},
        )
        sampling = _SETTINGS.sampling(call)
        request = chat_request(
            call.body, in_training=True, session=call.session, **sampling
        )
        result = until_stop(request.stop, await self._policy.chat(request))
        return completion_body(result, episode.rollout_id, self._policy.model_name)
