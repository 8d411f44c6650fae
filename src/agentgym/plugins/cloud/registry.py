"""Find providers by name, built in or from other packages."""

from agentgym.core.registry import Registry
from agentgym.errors import ComputeError, UnsupportedError
from agentgym.plugins.cloud.base import Provider

PROVIDERS = Registry(
    Provider,
    "provider of GPUs",
    {
        "local": "agentgym.plugins.cloud.providers.local:LocalMachine",
        "runpod": "agentgym.plugins.cloud.providers.runpod:RunPod",
        "lambda": "agentgym.plugins.cloud.providers.lambda_cloud:LambdaCloud",
        "sky": "agentgym.plugins.cloud.providers.skypilot:SkyPilot",
    },
    group="agentgym.compute",
)


def rented() -> list[Provider]:
    """Return all providers that rent out machines, even if their key is not set."""
    every = [PROVIDERS.get(name) for name in PROVIDERS.names()]
    return [provider for provider in every if provider.is_rented]


def asked_unnamed() -> list[Provider]:
    """Return the providers to ask for offers if the user does not name one."""
    return [
        provider
        for provider in rented()
        if not provider.only_named and not problem(provider)
    ]


def require_spot(providers: list[Provider]) -> list[Provider]:
    """Return those of the given providers that have spot machines."""
    found = [provider for provider in providers if provider.has_spot]
    if not found:
        names = " or ".join(each.name for each in providers) or "this machine"
        known = " or --gpu ".join(each.name for each in rented() if each.has_spot)
        raise UnsupportedError(
            f"--spot: {names} has no spot machines that AgentGym can rent. Take --gpu "
            f"{known}, or leave --spot out."
        )
    return found


def problem(provider: Provider) -> str:
    """Return the error message of ``provider.check()``; empty if it is set up."""
    try:
        provider.check()
    except ComputeError as error:
        return str(error)
    return ""
