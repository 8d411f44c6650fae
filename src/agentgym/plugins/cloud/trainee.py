"""Train on the remote machine, and write progress events to a file.

The settings and the values of environment variables arrive on standard input. They may
be secret, and other processes can read the environment that a process started with.
Worker processes get the values over a socket.
"""

import ctypes
import json
import os
import shutil
import signal
import sys
import traceback
from contextlib import suppress
from pathlib import Path
from typing import Any

from agentgym.core.config import AUTO_ENGINE, TrainingConfig
from agentgym.core.settings import PREFIX
from agentgym.engines.memory import shape_of
from agentgym.engines.resuming import MACHINE
from agentgym.errors import AgentGymError, Interrupted
from agentgym.plugins.cloud.install import ENGINES
from agentgym.plugins.cloud.progress_lines import ProgressWriter
from agentgym.plugins.cloud.run_server import write_json
from agentgym.security.redaction import redacted, redacted_output
from agentgym.train.trainer import Trainer

_SET_DEATH_SIGNAL = 1
_MAY_CHANGE = ("episodes", "yes", "warm_start", *MACHINE)


def main(attempt: Path) -> None:
    """Train, and write ``outcome.json`` into the folder ``attempt``."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    with suppress(OSError, AttributeError):  # end training if the watchdog dies
        ctypes.CDLL(None).prctl(_SET_DEATH_SIGNAL, signal.SIGINT)
    try:
        order = json.loads(sys.stdin.buffer.read())
        for name in [name for name in os.environ if name.startswith(PREFIX)]:
            del os.environ[name]
        os.environ["AGENTGYM_HOME"] = str(_home(attempt.parent / "home"))
        os.environ.update(order["variables"])
        sys.path.insert(0, os.getcwd())
        with redacted_output():
            _train(order, ProgressWriter(attempt))
        outcome: dict[str, Any] = {"kind": "done"}
    except (KeyboardInterrupt, Interrupted):
        outcome = {"kind": "interrupted"}
    except (Exception, SystemExit) as error:  # noqa: BLE001 - the client raises it
        if not isinstance(error, AgentGymError):
            sys.stderr.write(redacted(traceback.format_exc()))
        outcome = {
            "kind": "error",
            "type": type(error).__name__,
            "message": redacted(str(error)),
            "resumable": getattr(error, "resumable", True),
        }
    write_json(attempt / "outcome.json", outcome)


def _home(folder: Path) -> Path:
    """Create the run's own AGENTGYM_HOME, with a link to the machine's engines."""
    folder.mkdir(exist_ok=True)
    link = folder / "engines"
    if not link.is_symlink():
        link.symlink_to(Path.home() / ENGINES)
    return folder


def _train(order: dict[str, Any], progress: ProgressWriter) -> None:
    config = TrainingConfig.restore(order["config"])
    if config.engine == AUTO_ENGINE:  # it is chosen by the model's size
        with suppress(AgentGymError, OSError):  # the training itself reports it
            shape_of(config.model, fetch=True)
    trainer = Trainer(config, progress=progress)
    run = config.output / str(config.name)
    if order["resume"]:
        values = config.flat(config.model_dump())
        may_change = {name: values[name] for name in _MAY_CHANGE}
        trainer.train(resume=run, **may_change)
    else:
        shutil.rmtree(run, ignore_errors=True)  # of an attempt without results
        trainer.train()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
