"""Train on another machine: install, start, show progress, and fetch the results."""

import json
import shlex
import shutil
import socket
import tarfile
import tempfile
import threading
import time
import uuid
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from agentgym import errors
from agentgym.core.config import AUTO_ENGINE, TrainingConfig
from agentgym.core.files import parse_json
from agentgym.engines.registry import remote_engine
from agentgym.errors import (
    AgentGymError,
    ComputeError,
    TrainingInterrupted,
)
from agentgym.evaluate.events import Message, Observer, Plan, Warned, silent
from agentgym.plugins.cloud.base import Address
from agentgym.plugins.cloud.install import FOLDER, Ready, prepare
from agentgym.plugins.cloud.progress_lines import replay_progress
from agentgym.plugins.cloud.run_server import DATABASE, LOG, MODULE, version
from agentgym.plugins.cloud.shell import LONG_S, SHORT_S, Shell
from agentgym.plugins.cloud.upload import Upload, make_upload
from agentgym.security.audit import FILE as AUDIT_FILE
from agentgym.security.files import make_private_folder
from agentgym.security.redaction import redacted
from agentgym.train.export import keep
from agentgym.train.interrupts import InterruptFlag
from agentgym.train.places import Elsewhere, Place
from agentgym.train.result import TrainingResult
from agentgym.train.run_folder import CREDIT_FILE, RunFolder
from agentgym.train.trained_agent import TrainedAgent
from agentgym.version import DISTRIBUTION, __version__

KNOWN_HOSTS = "known_hosts"
_REST = 4.0
"""Pause between two fetches of files, as a multiple of the last fetch's time."""
_WAIT_S, _PAUSE_S = 2.0, 0.3
_ENDING_S, _SENDING_S = 300.0, 24 * 3600.0
_MEANWHILE = "; the training goes on"
_END = 1 << 40
"""Offset beyond the end of any file, to get the run's state without new events."""
_INCOMING = ".incoming"
_SENT = (
    *("checkpoints", "metrics.jsonl", CREDIT_FILE, "tensorboard", "wandb"),
    *("workers.log", DATABASE, f"{DATABASE}-wal"),
)
_LOST = (
    "is gone without a message: the machine was restarted, or the process was killed"
)
_MAY_CHOOSE = (
    "vllm, which is made to sample on a GPU, if the machine has one with room for it "
    "and the learner; else local. --engine local leaves vLLM out (20 GB)"
)


class OverSSH(Place):
    """Trains on a machine that the user can log in to, with ``--gpu ssh:user@host``."""

    def plan(self, config: TrainingConfig) -> Elsewhere:
        """Return the plan of a run, without contacting the machine."""
        return plan_elsewhere(config, f"{_address(config)}, over SSH")

    def train(
        self, config: TrainingConfig, run: RunFolder, progress: Observer
    ) -> TrainingResult:
        """Train the run on the machine, and return its result."""
        return train_elsewhere(config, _address(config), None, run, progress)

    def fetch_results(self, config: TrainingConfig, run: RunFolder) -> str | None:
        """Stop the training and fetch its finished files."""
        try:
            fetch_results(_address(config), None, run)
        except ComputeError as error:
            run.write_record(elsewhere=None)
            return str(error)
        return None


def _address(config: TrainingConfig) -> Address:
    return Address.parse(config.gpu.partition(":")[2])


def plan_elsewhere(config: TrainingConfig, machine: str) -> Elsewhere:
    """Return the plan of a run on another machine: uploads and installations."""
    upload = make_upload(config)
    own = f"{DISTRIBUTION.replace('-', '_')}-{__version__}"
    installs = [f"{own} [{', '.join(upload.extras)}]", *upload.packages]
    engine = remote_engine(config)
    may_choose = engine == AUTO_ENGINE
    if engine != "local":
        where = ", if its GPU has room" * may_choose
        name = "vllm" if may_choose else engine
        installs.append(f"the environment of {name}{where}, unless it is installed")
    return Elsewhere(
        config=config,
        machine=machine,
        uploads={name: path.stat().st_size for name, path in upload.files.items()},
        installs=installs,
        variables=list(upload.variables),
        folder=f"~/{FOLDER}",
        engine=_MAY_CHOOSE if may_choose else "",
    )


def train_elsewhere(
    config: TrainingConfig,
    address: Address,
    key_file: Path | None,
    run: RunFolder,
    progress: Observer,
    *,
    ending: Callable[[], dict[str, Any] | None] = lambda: None,
    require_machine: Callable[[bool], None] = lambda is_lost: None,
) -> TrainingResult:
    """Train a run on another machine, as if it were local.

    If the machine is training this run already, its progress is shown. If it has
    finished the run, only the results are fetched. Otherwise, training starts from the
    newest local or remote checkpoint. The remote files count if the run was last
    trained on this machine; otherwise, they are replaced by the local ones.
    """
    with run.recorded(config):
        upload = make_upload(config)
        shell = _shell(address, key_file, run, progress, lambda: require_machine(False))
        try:
            ready = prepare(shell, upload, lambda text: progress(Message(text)))
        except KeyboardInterrupt:
            if run.record().get("elsewhere"):
                raise _not_interrupted(run, address) from None
            raise
        remote = _RemoteRun(shell, ready, upload, run, progress)
        return remote.train(ending, require_machine)


def fetch_results(address: Address, key_file: Path | None, run: RunFolder) -> None:
    """Stop a run's training on the machine that trains it, and fetch its files."""
    known = run.record().get("elsewhere")
    if not known or known["address"] != str(address):
        return
    shell = _shell(address, key_file, run, silent)
    ready, upload = Ready(known["python"], known["home"]), make_upload(run.config())
    remote = _RemoteRun(shell, ready, upload, run, silent)
    remote.stop()
    remote.fetch()
    remote.remove()


def _not_interrupted(run: RunFolder, address: Address) -> TrainingInterrupted:
    """Return the exception for a Ctrl-C that did not reach the remote training."""
    ended = run.interrupted()
    ended.add_note(
        f"The training on {address} did not get the signal and goes on; to follow it: "
        f"agentgym train --resume {run.path}"
    )
    return ended


def _shell(
    address: Address,
    key_file: Path | None,
    run: RunFolder,
    progress: Observer,
    require_machine: Callable[[], None] = lambda: None,
) -> Shell:
    """Return a shell whose first connection is retried as long as that is worth it."""
    is_known = bool(run.record().get("elsewhere"))
    # A rented machine is ended if the connection fails; on the user's own one, that
    # loses nothing.
    waits_s = LONG_S if key_file is not None else SHORT_S if is_known else ()
    own = None if key_file is None else run.path.absolute() / KNOWN_HOSTS
    shell = Shell(
        address,
        key_file,
        own,
        progress=progress,
        waits_s=waits_s,
        require_machine=require_machine,
    )
    shell.meanwhile = _MEANWHILE if is_known else ""
    return shell


class _RemoteRun:
    """One run on one remote machine: starts it, follows it, and fetches its files."""

    def __init__(
        self,
        shell: Shell,
        ready: Ready,
        upload: Upload,
        run: RunFolder,
        progress: Observer,
    ) -> None:
        record = run.record()
        self._shell, self._ready, self._upload = shell, ready, upload
        self._run, self._progress, self._where = run, progress, shell.address
        self._last = record.get("elsewhere") or {}
        self._id = record.get("remote_id") or f"{run.path.name}-{uuid.uuid4().hex[:8]}"
        self._folder = f"{ready.home}/{FOLDER}/runs/{self._id}"
        self._sent = upload.remote_config(self._folder, run.path.name)
        self._stops = False
        self._replies: dict[int, Any] = {}
        self._fetched: dict[str, Any] = {}

    def _server(self, task: str, *words: str) -> str:
        """Return the command that runs a task of ``run_server`` on the machine."""
        return "exec " + shlex.join(
            [self._ready.python, "-m", MODULE, self._folder, task, *words]
        )

    def train(
        self,
        ending: Callable[[], dict[str, Any] | None],
        require_machine: Callable[[bool], None],
    ) -> TrainingResult:
        """Start the run unless it trains, show its progress, and fetch its files."""
        with InterruptFlag() as flag:
            state = self._ask(_END)
            is_newest = self._last.get("address") == str(self._where)
            if state["state"] != "none" and not is_newest:
                self._discard()
                state = self._ask(_END)
            is_done = (state["outcome"] or {}).get("kind") == "done"
            is_over = is_done and self._last.get("episodes") == self._sent.episodes
            is_started = state["state"] == "running" or is_over
            if not is_started:
                self._send_files(is_there=state["state"] != "none")
            self._let_interrupt(flag)
            if not is_started:
                self._start(ending(), state["attempt"] + 1)
            outcome = self._follow(flag)
            self.fetch()
        if outcome["kind"] == "interrupted" and not self._stops:
            require_machine(True)  # a machine's shutdown also interrupts
        if outcome["kind"] != "done":
            error = self._ended_with(outcome)
            if not self._run.checkpoints():
                self.remove()
            raise error
        result = self._save_agent()
        self.remove()
        return result

    def _ask(self, offset: int, wait_s: float = 0.0) -> dict[str, Any]:
        """Return the remote run's state, and its events from a byte ``offset`` on."""
        request = {
            "client": f"{socket.gethostname()}:{self._run.path.absolute()}",
            "offset": offset,
            "wait_s": wait_s,
            "stop": self._stops,
            "replies": self._replies,
        }
        data = json.dumps(request).encode()
        text = self._shell.run(self._server("poll"), data=data)
        found: dict[str, Any] = parse_json(text.splitlines()[-1])
        return found

    def stop(self) -> None:
        """Stop the remote training if it is running, and wait until it has ended."""
        until, self._stops = time.monotonic() + _ENDING_S, True
        while self._ask(_END, _WAIT_S)["state"] == "running":
            if time.monotonic() > until:
                raise ComputeError(
                    f"The training on {self._where} was asked to stop, and has not "
                    f"within {_ENDING_S:.0f} s. End it on that machine, and resume the "
                    "run."
                )
        self._stops = False

    def _discard(self) -> None:
        """Stop the training, and remove the files, of a machine with other results."""
        message = (
            f"The run has gone on without {self._where}, so it continues from "
            f"{self._run.path}. Later results of {self._where} are not used."
        )
        self._progress(Warned(message))
        self.stop()
        self._remove_files()

    def _remove_files(self) -> None:
        self._shell.run(f"rm -rf {shlex.quote(self._folder)}")

    def _send_files(self, *, is_there: bool) -> None:
        """Send the user's files, and the run unless the machine has it."""
        self._progress(Message(f"Sending the run to {self._where}."))
        try:
            self._send(self._upload.files, "inputs")
            if self._run.checkpoints() and not is_there:
                self._send_run()
        except BaseException:
            if not is_there:
                with suppress(ComputeError):
                    self._remove_files()
            raise

    def _send_run(self) -> None:
        """Send the local run, with the settings of the remote one."""
        names = [*_SENT, *(path.name for path in self._run.path.glob(f"{AUDIT_FILE}*"))]
        files = {name: self._run.path / name for name in names}
        with tempfile.TemporaryDirectory() as scratch:
            record = Path(scratch) / "run.json"
            settings = self._sent.model_dump(mode="json")
            record.write_text(json.dumps({**self._run.record(), "config": settings}))
            files = {name: path for name, path in files.items() if path.exists()}
            self._send({"run.json": record, **files}, f"runs/{self._run.path.name}")

    def _send(self, files: dict[str, Path], to: str) -> None:
        """Replace the remote folder ``to`` by files, given by their names there."""
        folder = shlex.quote(f"{self._folder}/{to}")
        new = shlex.quote(f"{self._folder}/.new")
        with tempfile.TemporaryFile() as archive:
            with tarfile.open(fileobj=archive, mode="w", dereference=True) as tar:
                for name, path in sorted(files.items()):
                    tar.add(path, name)
            self._shell.run(
                f"umask 077; rm -rf {new} && mkdir -p {new} {folder} && "
                f"tar -xf - -C {new} && rm -rf {folder} && mv {new} {folder}",
                data=archive,
                timeout_s=_SENDING_S,
            )

    def _let_interrupt(self, flag: InterruptFlag) -> None:
        """From now on, Ctrl-C ends the remote training, not this process."""
        # A thread takes the signal, and the waiting code checks the flag.
        threading.Thread(target=flag.wait, daemon=True).start()

        def require_no_signal() -> None:
            if flag.requested:
                raise _not_interrupted(self._run, self._where)

        self._shell.heed, self._shell.meanwhile = require_no_signal, _MEANWHILE

    def _start(self, ending: dict[str, Any] | None, number: int) -> None:
        """Start training on the machine, and record that the run trains there."""
        elsewhere = {
            "address": str(self._where),
            "python": self._ready.python,
            "home": self._ready.home,
            "episodes": self._sent.episodes,
        }
        self._run.write_record(elsewhere=elsewhere, remote_id=self._id)
        train = {
            "folder": f"{self._folder}/inputs",
            "config": self._sent.model_dump(mode="json"),
            "variables": self._upload.variables,
        }
        payload = json.dumps({"train": train, "ending": ending}).encode()
        self._shell.run(self._server("start", str(number)), data=payload)

    def _follow(self, flag: InterruptFlag) -> dict[str, Any]:
        """Show progress and fetch files until training ends; return its outcome."""
        is_due, rest_until, offset = False, 0.0, 0
        while True:
            self._stops = flag.requested
            state = self._ask(offset, _WAIT_S)
            offset, self._replies = state["offset"], {}
            is_due |= replay_progress(
                state["events"],
                self._progress,
                self._planned,
                self._replies.__setitem__,
            )
            if state["state"] in ("lost", "ended") and not state["events"]:
                return state["outcome"] or {"kind": "lost", "message": _LOST}
            if is_due and time.monotonic() >= rest_until:
                begun = time.monotonic()
                self.fetch()
                now = time.monotonic()
                is_due, rest_until = False, now + _REST * (now - begun)
            time.sleep(_PAUSE_S)

    def fetch(self) -> None:
        """Fetch the run's new files; the checkpoints and the database stay complete."""
        incoming = self._run.path / _INCOMING
        self._unpack(incoming)
        self._fetched = {
            name: json.loads((incoming / name).read_bytes())
            for name in ("run.json", "result.json")
            if (incoming / name).exists()
        }
        log = incoming / LOG
        if log.exists():
            log.write_text(redacted(log.read_text(errors="replace")))
        _place(incoming, self._run)

    def _unpack(self, incoming: Path) -> None:
        """Fetch the files into an empty folder."""
        have = {path.name: version(path) for path in self._run.checkpoints()}
        shutil.rmtree(incoming, ignore_errors=True)
        make_private_folder(incoming)
        with tempfile.TemporaryFile(dir=incoming) as archive:
            self._shell.run(
                self._server("pack", self._run.path.name),
                data=json.dumps(have).encode(),
                output=archive,
                timeout_s=_SENDING_S,
            )
            archive.seek(0)
            try:
                with tarfile.open(fileobj=archive) as tar:
                    tar.extractall(incoming, filter="data")
            except tarfile.TarError as error:
                raise ComputeError(
                    f"{self._where} sent files that cannot be used ({error}). Let its "
                    "shell print nothing in sessions without a terminal (~/.bashrc)."
                ) from None

    def _planned(self, plan: Plan) -> Plan:
        """Return a plan with local paths instead of remote ones; save its settings."""
        config = self._adopted(plan.config)
        device = f"{plan.device} of {self._where}"
        return replace(plan, config=config, run=self._run.path, device=device)

    def _adopted(self, found: TrainingConfig) -> TrainingConfig:
        """Return the local settings with the machine's changes, and save them."""
        config = self._upload.with_remote_changes(self._sent, found)
        self._run.write_record(config=config.model_dump(mode="json"))
        return config

    def remove(self) -> None:
        """Remove the run from the machine, after all files were fetched."""
        self._shell.waits_s = SHORT_S if self._shell.key_file is None else ()
        try:
            self._remove_files()
        except ComputeError as error:
            if self._shell.key_file is None:  # a rented one may end before its answer
                remark = (
                    f"All of the run is in {self._run.path}. {self._where} could not "
                    f"be asked to remove its copy, {self._folder}: {error}"
                )
                self._progress(Warned(remark))
        self._run.write_record(elsewhere=None)

    def _save_agent(self) -> TrainingResult:
        """Save the trained agent of the finished run; return the run's result."""
        found = TrainingConfig.restore(self._fetched["run.json"]["config"])
        # Another machine may choose another engine, so this one's is not saved.
        config = self._adopted(found).replaced(engine=found.engine)
        settings, path = config.model_dump(mode="json"), self._run.path
        agent = TrainedAgent.load((path / "agent").resolve())
        where = {"base_model": config.model, "config": settings}
        agent.provenance = agent.provenance.model_copy(
            update={**where, "run": str(path.resolve()), "folder": str(Path.cwd())}
        )
        agent.write_card()
        result = TrainingResult.model_validate(
            {
                **self._fetched["result.json"],
                "config": settings,
                "artifacts": {"run": str(path), "agent": str(path / "agent")},
                "saved": keep(agent, config.agent_name).model_dump(mode="json"),
            }
        )
        result.write()
        return result

    def _ended_with(self, outcome: dict[str, Any]) -> AgentGymError:
        """Return the exception for a remote run that did not finish."""
        kind = outcome["kind"]
        message = self._upload.with_local_paths(outcome["message"], self._folder)
        if kind == "interrupted":
            return self._run.interrupted()
        error_type = getattr(errors, kind, None)
        if not (isinstance(error_type, type) and issubclass(error_type, AgentGymError)):
            return ComputeError(
                f"The training on {self._where} {message}. Its log is in "
                f"{self._run.path / LOG}."
            )
        error = error_type.__new__(error_type)
        error.args = (message,)
        if isinstance(error, errors.TrainingFailedError):
            error.resumable = outcome["resumable"]
        return error


def _place(incoming: Path, run: RunFolder) -> None:
    """Move fetched files into the run: the database first, checkpoints last."""
    # Each checkpoint records how many rollouts the database has.
    path, checkpoints = run.path, incoming / "checkpoints"
    if (incoming / DATABASE).exists():
        for log in ("-wal", "-shm"):  # left by an earlier local training
            (path / f"{DATABASE}{log}").unlink(missing_ok=True)
        (incoming / DATABASE).replace(path / DATABASE)
    there = sorted(checkpoints.iterdir(), reverse=True)
    others = [each for each in incoming.iterdir() if each != checkpoints]
    for new in (*others, *(each for each in there if version(each))):
        target = path / new.relative_to(incoming)
        if new.name in ("run.json", "result.json"):
            continue
        if new.is_dir():
            shutil.rmtree(target, ignore_errors=True)
        new.replace(target)
    names = [each.name for each in there]
    for old in run.checkpoints() if there else ():
        if old.name not in names:
            shutil.rmtree(old)
    shutil.rmtree(incoming)
