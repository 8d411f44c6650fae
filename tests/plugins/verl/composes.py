"""Composes verl's configurations as a run does, and makes verl's own objects of them.

Run by an interpreter that has verl: a list of settings comes in as JSON, and the
composed configurations go out.
"""

import json
import sys


def main() -> None:
    from omegaconf import OmegaConf
    from verl.utils.config import omega_conf_to_dataclass

    from agentgym.plugins.verl.compose import compose

    made = []
    for settings in json.load(sys.stdin):
        config = compose(settings)
        OmegaConf.resolve(config)
        assert OmegaConf.is_struct(config)
        for part in (config.actor_rollout_ref.actor, config.actor_rollout_ref.rollout):
            omega_conf_to_dataclass(part)  # of the wrong type, or at odds: an error
        made.append(OmegaConf.to_container(config))
    json.dump(made, sys.stdout)


if __name__ == "__main__":
    main()
