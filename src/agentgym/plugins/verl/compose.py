"""Compose verl's configuration from its defaults and a run's settings."""

import dataclasses
import json
import sys
from difflib import get_close_matches
from importlib import import_module
from typing import Any

# For each trainer, the package, folder and name of its default configuration.
_PLACES = {
    "verl": ("verl.trainer", "config", "ppo_trainer"),
    "agentlightning": ("agentlightning.verl", "", "config"),
}
# Sections of verl's settings whose keys are another library's and are not checked.
_OPEN = (
    "engine_kwargs",
    "mixed_precision",
    "override_config",
    "override_optimizer_config",
    "ray_init",
)


def compose(settings: dict[str, Any], of: str = "verl") -> Any:
    """Return verl's default configuration, changed by ``settings`` (dotted keys).

    The setting ``model_engine`` chooses the defaults: ``dp`` (FSDP) or ``megatron``.
    ``of`` names the trainer: ``verl``, or ``agentlightning`` for Agent Lightning's
    trainer, whose configuration has an additional section.
    """
    from importlib import resources

    from hydra import compose as composed
    from hydra import initialize_config_dir
    from omegaconf import OmegaConf

    given = dict(settings)
    engine = given.pop("model_engine", "dp")
    package, part, name = _PLACES[of]
    folder = str(resources.files(package).joinpath(part))
    with initialize_config_dir(config_dir=folder, version_base=None):
        config = composed(name, overrides=[f"model_engine={engine}"])
    known = set(dotted(OmegaConf.to_container(config, resolve=False)))
    for key, value in given.items():
        if problem := _key_problem(key, known):
            raise ValueError(problem)
        OmegaConf.update(config, key, value, merge=True, force_add=True)
    return config


def _key_problem(key: str, known: set[str]) -> str:
    """Return an error message if a dotted key is not in ``known``; empty if it is."""
    if key in known or any(part in _OPEN for part in key.split(".")[:-1]):
        return ""
    close = get_close_matches(key, known, n=1, cutoff=0.5)
    nearest = f"; the nearest is {close[0]!r}" if close else ""
    return f"verl has no setting {key!r}{nearest}."


def dotted(values: Any, above: str = "") -> list[str]:
    """Return all dotted keys of nested mappings, with the prefix ``above``.

    A mapping with the key ``_target_`` configures a dataclass: the result has the
    fields of this class too.
    """
    if not isinstance(values, dict):
        return []
    keys = []
    for name, value in values.items():
        key = f"{above}{name}"
        keys += [key, *dotted(value, f"{key}.")]
    module, _, name = str(values.get("_target_", "")).rpartition(".")
    if module:
        try:
            fields = dataclasses.fields(getattr(import_module(module), name))
        except ImportError:  # of a backend that is not installed
            fields = ()
        keys += [f"{above}{f.name}" for f in fields if not f.name.startswith("_")]
    return list(dict.fromkeys(keys))


def main() -> None:
    """Read settings as JSON from standard input; print the configuration as YAML.

    The first argument may name the trainer (``of`` in :func:`compose`).
    """
    from omegaconf import OmegaConf

    try:
        made = compose(json.load(sys.stdin), *sys.argv[1:])
    except ValueError as error:
        sys.exit(f"agentgym: {error}")
    sys.stdout.write(OmegaConf.to_yaml(made))


if __name__ == "__main__":
    main()
