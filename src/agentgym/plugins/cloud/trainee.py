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
from agentgym.engines.resuming import may_change
from agentgym.errors import AgentGymError, ComputeError, Interrupted, UsageError
from agentgym.evaluate.events import Message
from agentgym.plugins.cloud.base import local_offers
from agentgym.plugins.cloud.progress_lines import ProgressWriter
from agentgym.plugins.cloud.quote import fits, needs_of
from agentgym.plugins.cloud.run_server import write_json
from agentgym.plugins.vllm.environment import ENVIRONMENT
from agentgym.security.redaction import redacted, redacted_output
from agentgym.train.run_folder import RunFolder
from agentgym.train.trainer import Trainer

_SET_DEATH_SIGNAL = 1
_STAYS = ("gpu", "verl.settings")
_UV_FOLDERS = (".agentgym/bin", ".local/bin", ".cargo/bin")
"""Folders that may have uv, relative to the home folder."""


def main(attempt: Path) -> None:
    """Train, and write ``outcome.json`` into the folder ``attempt``."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    with suppress(OSError, AttributeError):  # end training if the watchdog dies
        ctypes.CDLL(None).prctl(_SET_DEATH_SIGNAL, signal.SIGINT)
    try:
        order = json.loads(sys.stdin.buffer.read())
        for name in [name for name in os.environ if name.startswith(PREFIX)]:
            del os.environ[name]
        config = TrainingConfig.restore(order["config"])
        progress = ProgressWriter(attempt)
        os.environ.update(order["variables"])
        with redacted_output():
            _install_engine(config, progress)
            os.environ["AGENTGYM_HOME"] = str(_home(attempt.parent / "home"))
            sys.path.insert(0, os.getcwd())
            _train(config, progress)
        outcome: dict[str, Any] = {"kind": "done", "message": ""}
    except (KeyboardInterrupt, Interrupted):
        outcome = {"kind": "interrupted", "message": ""}
    except (Exception, SystemExit) as error:  # noqa: BLE001 - the client raises it
        kind, message = type(error).__name__, str(error)
        if not isinstance(error, AgentGymError):
            sys.stderr.write(redacted(traceback.format_exc()))
            message = f"failed: {kind}: {message}"
        outcome = {
            "kind": kind,
            "message": redacted(message),
            "resumable": getattr(error, "resumable", True),
        }
    write_json(attempt / "outcome.json", outcome)


def _install_engine(config: TrainingConfig, progress: ProgressWriter) -> None:
    """Install vLLM for all runs of this machine, if this run may use it."""
    may_choose = config.engine == AUTO_ENGINE
    if not (may_choose or config.engine == ENVIRONMENT.engine):
        return
    gpus = [offer for offer in local_offers() if offer.gpus]
    if may_choose:
        with suppress(AgentGymError, OSError):  # it is chosen by the model's size
            shape_of(config.model, fetch=True)
        with suppress(UsageError):  # the size is unknown: try it
            need = needs_of(config)[0]
            gpus = [offer for offer in gpus if fits(offer, need)]
        if not gpus:
            return
    with suppress(UsageError):
        ENVIRONMENT.interpreter()
        return
    progress(Message("Installing vllm on the machine, which takes minutes."))
    folders = (str(Path.home() / folder) for folder in _UV_FOLDERS)
    os.environ["PATH"] = os.pathsep.join((os.environ.get("PATH", ""), *folders))
    try:
        for _ in ENVIRONMENT.install(for_cpu=not gpus):
            pass
    except AgentGymError as error:
        words = f"vllm could not be installed on the machine. {error}"
        if not may_choose:
            raise ComputeError(
                f"{words} Log in there and run `agentgym engine install vllm`, or "
                "train with --engine local."
            ) from None
        words += " This run samples with the local engine instead."
        progress(Message(words))


def _home(folder: Path) -> Path:
    """Create the run's own AGENTGYM_HOME, with a link to the machine's engines."""
    folder.mkdir(exist_ok=True)
    link = folder / "engines"
    if not link.is_symlink():
        link.symlink_to(Path.home() / ".agentgym" / "engines")
    return folder


def _train(config: TrainingConfig, progress: ProgressWriter) -> None:
    trainer = Trainer(config, progress=progress)
    run = config.output / str(config.name)
    if RunFolder(run).checkpoints():
        values = config.flat(config.model_dump())
        changes = {name: values[name] for name in may_change() if name not in _STAYS}
        trainer.train(resume=run, **changes)
    else:
        shutil.rmtree(run, ignore_errors=True)  # of an attempt without results
        trainer.train()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
