"""Define Agent Lightning's virtual environment, and check that it works."""

from agentgym.engines.environments import (
    Build,
    Checked,
    EngineEnvironment,
    imports,
    installed_version,
    machine,
)
from agentgym.errors import UsageError

SUPPORTED = "1.0"  # the release of Agent Lightning
# With verl 0.8: Agent Lightning's trainer imports parts of verl that verl 0.9 does not
# have. verl 0.8 needs a vLLM that does not support transformers 5.
ENVIRONMENT = EngineEnvironment(
    engine="lightning",
    called="verl",
    release=(0, 8),
    build=Build(
        "Agent Lightning with verl and vLLM",
        (
            "agentlightning>=1.0,<1.1",
            "verl[vllm]>=0.8,<0.9",
            "transformers<5",
            "tensordict<0.11",
            "pyarrow<24",
            "ray[default]",
            "torch",
        ),
        gigabytes=30,
    ),
)


def check() -> list[Checked]:
    """Check the environment and the machine; start no trainer and no servers."""
    try:
        python = ENVIRONMENT.interpreter()
    except UsageError as error:
        return [Checked("environment", False, str(error))]
    names = ("agentlightning", "verl", "ray", "torch", "vllm")
    found = ENVIRONMENT.packages(python, *names)
    found.append(imports(python, "agentlightning.verl, verl, ray, torch"))
    return [*found, *machine()]


def require() -> None:
    """Raise UsageError unless the environment has a supported Agent Lightning."""
    python = ENVIRONMENT.interpreter()
    version = installed_version(python, "agentlightning")
    if version is None or not version.startswith(f"{SUPPORTED}."):
        found = "no agentlightning" if version is None else f"agentlightning {version}"
        raise UsageError(
            f"{python.parent.parent} has {found}, and this works with {SUPPORTED}. "
            f"{ENVIRONMENT.advice}"
        )
