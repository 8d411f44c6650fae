"""Find providers by name, built in or from other packages."""

from agentgym.compute.base import Provider
from agentgym.core.plugins import Plugins
from agentgym.errors import ComputeError

PROVIDERS = Plugins(
    Provider,
    "provider of GPUs",
    {
        "local": "agentgym.compute.providers.local:LocalMachine",
        "runpod": "agentgym.compute.providers.runpod:RunPod",
        "lambda": "agentgym.compute.providers.lambda_cloud:LambdaCloud",
        "sky": "agentgym.compute.providers.skypilot:SkyPilot",
    },
    group="agentgym.compute",
)


def rented() -> list[Provider]:
    """Return all providers with rented machines, configured or not."""
    every = [PROVIDERS.get(name) for name in PROVIDERS.names()]
    return [provider for provider in every if provider.is_rented]


def asked_unnamed() -> list[Provider]:
    """Return the providers to ask for offers if the user names none."""
    return [
        provider
        for provider in rented()
        if not provider.only_named and not problem(provider)
    ]


def problem(provider: Provider) -> str:
    """Return the missing setup of a provider; empty if it is ready."""
    try:
        provider.check()
    except ComputeError as error:
        return str(error)
    return ""
