"""Train on another machine: install, start, show progress, and fetch the results."""

import json
import os
import shlex
import shutil
import tarfile
import tempfile
import threading
import time
import uuid
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import IO, Any

from agentgym import errors
from agentgym.core.config import AUTO_ENGINE, TrainingConfig
from agentgym.core.files import is_below
from agentgym.engines.registry import remote_engine
from agentgym.errors import (
    AgentGymError,
    ComputeError,
    TrainingHalted,
    TrainingInterrupted,
    UnreachableError,
)
from agentgym.evaluate.events import Message, Observer, Plan, Warned, silent
from agentgym.plugins.cloud.base import Address, EndRequest
from agentgym.plugins.cloud.install import FOLDER, Ready, prepare
from agentgym.plugins.cloud.progress_lines import replay_progress
from agentgym.plugins.cloud.run_server import (
    BLOCK,
    DATABASE,
    copy_database,
    digests,
    version,
)
from agentgym.plugins.cloud.shell import LONG_S, SHORT_S, Channel, Reconnect, Shell
from agentgym.plugins.cloud.upload import Upload, make_upload
from agentgym.plugins.cloud.watchdog import EndLimits
from agentgym.security.audit import FILE as AUDIT_FILE
from agentgym.security.files import private
from agentgym.security.redaction import quoted, redacted
from agentgym.train.export import keep
from agentgym.train.interrupts import InterruptFlag
from agentgym.train.places import Elsewhere, Place
from agentgym.train.result import TrainingResult
from agentgym.train.run_folder import CREDIT_FILE, RunFolder
from agentgym.train.trained_agent import TrainedAgent
from agentgym.version import DISTRIBUTION, __version__

LOG = "elsewhere.log"
"""Local file with the output of the remote training."""
KNOWN_HOSTS = "known_hosts"
_REST = 4.0
"""Pause between two fetches of files, as a multiple of the last fetch's time."""
_ENDING_S, _SENDING_S = 300.0, 24 * 3600.0
_MEANWHILE = "; the training goes on"
_END = 1 << 40
"""Offset beyond the end of any file, to get the run's state without new output."""
_INCOMING = ".incoming"
_SENT = (
    *("checkpoints", "metrics.jsonl", CREDIT_FILE, "tensorboard", "wandb"),
    "workers.log",
)
_OUT_OF_MEMORY = -9
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
    ending: EndRequest | None = None,
    limits: Callable[[], EndLimits] = EndLimits,
    require_machine: Callable[[bool], None] = lambda is_lost: None,
) -> TrainingResult:
    """Train a run on another machine, as if it were local.

    If the machine is training this run already, its progress is shown. If it has
    finished the run, only the results are fetched. Otherwise, training starts from the
    newest local or remote checkpoint. Remote files are used only if they continue the
    local files. If they do not, the run has continued on a third machine or locally,
    and the local files are used.
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

        def order() -> dict[str, Any]:
            own = None if ending is None else asdict(ending)
            return {"limits": asdict(limits()), "ending": own}

        with _Followed(shell, ready, upload, run) as followed:
            return followed.run(order, require_machine)


def fetch_results(address: Address, key_file: Path | None, run: RunFolder) -> None:
    """Stop a run's training on the machine that trains it, and fetch its files."""
    known = run.record().get("elsewhere")
    if not known or known["address"] != str(address):
        return
    shell = _shell(address, key_file, run, silent)
    ready, upload = Ready(known["python"], known["home"]), make_upload(run.config())
    with _Followed(shell, ready, upload, run) as followed:
        followed.leave()


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
    known = str(address) in _machines_of(run)
    # A rented machine is ended if the connection fails; on the user's own one, that
    # loses nothing.
    waits_s = LONG_S if key_file is not None else SHORT_S if known else ()
    meanwhile = _MEANWHILE if known else ""
    own = None if key_file is None else run.path.absolute() / KNOWN_HOSTS
    again = Reconnect(address, progress, waits_s, meanwhile, require_machine)
    return Shell(address, key_file, own, again)


def _machines_of(run: RunFolder) -> dict[str, Any]:
    """Return the machines that may have a copy of the run, by address."""
    record = run.record()
    machines = dict(record.get("left") or {})
    if last := record.get("elsewhere"):
        machines[last["address"]] = last
    return machines


class _Followed:
    """Trains one run on one remote machine; reconnects after a broken connection."""

    def __init__(
        self, shell: Shell, ready: Ready, upload: Upload, run: RunFolder
    ) -> None:
        assert shell.reconnect is not None
        known = _machines_of(run).get(str(shell.address))
        new = {"id": f"{run.path.name}-{uuid.uuid4().hex[:8]}", "episodes": 0}
        self._id, self._episodes = (known or new)["id"], (known or new)["episodes"]
        self._folder = f"{ready.home}/{FOLDER}/runs/{self._id}"
        self._where = shell.address
        self._shell, self._ready, self._upload, self._run = shell, ready, upload, run
        self._reconnect, self._progress = shell.reconnect, shell.reconnect.progress
        self._sent = upload.remote_config(self._folder, run.path.name)
        self._channel = Channel(shell, ready.python, self._folder)
        self._mirror = Mirror(self._channel, run, self._heed)
        self._flag = InterruptFlag()
        self._trains = self._stopped = False
        self._replies: dict[int, Any] = {}
        self._replayed = 0

    def __enter__(self) -> "_Followed":
        self._reconnect.heed = self._require_no_signal
        return self

    def __exit__(self, *error: object) -> None:
        self._flag.__exit__(*error)
        self._channel.close()

    def run(
        self,
        order: Callable[[], dict[str, Any]],
        require_machine: Callable[[bool], None],
    ) -> TrainingResult:
        """Start the run unless it trains, show its progress, and fetch its files."""
        state = self._opened()
        has_run, is_over = state["state"] != "none", self._is_over(state)
        if is_ahead := has_run and self._continues_local():
            self._pull()
        elif has_run:
            self._give_up(state)
        if not (is_ahead and (state["state"] == "running" or is_over)):
            try:
                self._start(order, state["attempt"] + 1, is_there=is_ahead)
            except UnreachableError:
                raise
            except BaseException:
                if not (has_run or self._trains):
                    self._clear()
                raise
        outcome = self._follow()
        files = self._pull()
        if outcome["kind"] == "interrupted" and not self._stopped:
            require_machine(True)  # a machine's shutdown also interrupts
        if outcome["kind"] != "done":
            error = self._ended_with(outcome)
            if not self._run.checkpoints():
                self._forget()
            raise error
        found = TrainingConfig.restore(files["record"]["config"])
        # Another machine may choose another engine, so this one's is not saved.
        config = self._adopted(found).replaced(engine=found.engine)
        result = _save_agent(files["result"], self._run, config)
        self._forget()
        return result

    def leave(self) -> None:
        """Stop the training, fetch finished files, and remove the remote files."""
        state = self._opened()
        if state["state"] != "none":
            if self._continues_local():
                self._end(state)
                self._pull()
            else:
                self._give_up(state)
        self._forget()

    def _continues_local(self) -> bool:
        """Return whether the newest local checkpoint is one that this machine had."""
        found = self._run.checkpoints()
        known = _machines_of(self._run).get(str(self._where)) or {}
        return not found or version(found[-1]) in known.get("had", ())

    def _pull(self) -> dict[str, Any]:
        """Fetch the run's new files; return the answer of ``RunServer.stage``."""
        files = self._persist(self._mirror.fetch)
        had = [version(path) for path in self._run.checkpoints()[-1:]]
        had += [version(path) for path in self._mirror.fetched_checkpoints()[-1:]]
        self._note(had)
        self._mirror.place(files)
        return files

    def _note(self, had: list[str]) -> None:
        """Record where the run is, and the versions of the newest checkpoints there."""
        elsewhere = {
            "address": str(self._where),
            "id": self._id,
            "python": self._ready.python,
            "home": self._ready.home,
            "episodes": self._episodes,
            "had": had,
        }
        self._run.write_record(elsewhere=elsewhere, left=self._left())

    def _opened(self) -> dict[str, Any]:
        """Connect, and return the remote run's state."""
        state = self._persist(self._channel.open)
        if state["state"] == "running":
            self._let_train()
        return state

    def _let_train(self) -> None:
        """From now on, Ctrl-C asks the remote training to stop."""
        self._trains, self._reconnect.meanwhile = True, _MEANWHILE
        self._flag.__enter__()
        # The waiting code checks the flag.
        threading.Thread(target=self._flag.wait, daemon=True).start()

    def _give_up(self, state: dict[str, Any]) -> None:
        """Stop the remote training; warn that its later results are not used."""
        step = int(self._run.checkpoints()[-1].name.removeprefix("step-"))
        message = (
            f"The run has gone on without {self._where}, so it continues from "
            f"{self._run.path}, after step {step}. Later results of {self._where} "
            "are not used."
        )
        self._progress(Warned(message))
        self._end(state)

    def _end(self, state: dict[str, Any]) -> None:
        """Stop the remote training if it is running, and wait until it has ended."""
        if state["state"] == "running":
            self._persist(lambda: self._channel.ask("stop"))
        until = time.monotonic() + _ENDING_S
        while state["state"] == "running":
            if time.monotonic() > until:
                raise ComputeError(
                    f"The training on {self._where} was asked to stop, and has not "
                    f"within {_ENDING_S:.0f} s. End it on that machine, and resume the "
                    "run."
                )
            state, _ = self._persist(lambda: self._channel.ask("poll", offset=_END))
        self._trains = False
        self._heed()
        self._flag.__exit__()
        self._flag = InterruptFlag()

    def _clear(self) -> None:
        """Remove the remote files of a run that was never started."""
        with suppress(ComputeError):
            self._channel.open()  # the last request may be incomplete
            self._channel.ask("finish")
        self._run.write_record(elsewhere=None)

    def _is_over(self, state: dict[str, Any]) -> bool:
        """Return whether the machine has trained all episodes that are wanted."""
        is_done = state["state"] == "ended" and state["outcome"]["kind"] == "done"
        return is_done and self._episodes == self._sent.episodes

    def _start(
        self, order: Callable[[], dict[str, Any]], number: int, *, is_there: bool
    ) -> None:
        """Send the run's files, and start training on the machine."""
        self._progress(Message(f"Sending the run to {self._where}."))
        with tempfile.TemporaryFile() as file:
            self._upload.write(file)
            self._send(file, "inputs")
        here = self._run.checkpoints()
        sent = self._sent.model_dump(mode="json")
        if here and not is_there:
            with tempfile.TemporaryFile() as file:
                _pack(self._run, sent, file)
                self._send(file, f"runs/{self._run.path.name}")
        self._episodes = self._sent.episodes
        self._note([version(path) for path in here[-1:]])
        train = {
            "folder": f"{self._folder}/inputs",
            "config": sent,
            "resume": bool(here),
            "variables": self._upload.variables,
        }
        self._let_train()
        payload = json.dumps({"train": train, **order()}).encode()
        self._persist(lambda: self._channel.ask("start", payload, number=number))

    def _send(self, file: IO[bytes], to: str) -> None:
        """Replace the remote folder ``to`` by the content of a tar archive."""
        folder = shlex.quote(f"{self._folder}/{to}")
        new = shlex.quote(f"{self._folder}/.new")
        self._shell.run(
            f"umask 077; rm -rf {new} && mkdir -p {new} {folder} && "
            f"tar -xf - -C {new} && rm -rf {folder} && mv {new} {folder}",
            data=file,
            timeout_s=_SENDING_S,
        )

    def _follow(self) -> dict[str, Any]:
        """Show progress and fetch files until training ends; return its outcome."""
        is_due, rest_until = False, 0.0
        while True:
            state = self._persist(self._hear)
            is_due |= state["has_made"]
            self._persist(self._answer)
            if state["state"] in ("lost", "ended") and not state["has_more"]:
                self._fetch_log(f"attempt-{state['attempt']}/log")
                return state["outcome"] or {"kind": "lost"}
            if is_due and time.monotonic() >= rest_until:
                begun = time.monotonic()
                self._pull()
                now = time.monotonic()
                is_due, rest_until = False, now + _REST * (now - begun)

    def _hear(self) -> dict[str, Any]:
        """Fetch new progress events, and show them."""
        self._heed()
        state, events = self._channel.ask("poll", offset=self._replayed)
        self._replayed += len(events)
        made = replay_progress(
            events, self._progress, self._planned, self._replies.__setitem__
        )
        return {**state, "has_made": made, "has_more": bool(events)}

    def _fetch_log(self, path: str) -> None:
        """Fetch the output of the remote training."""
        data = b""
        while part := self._persist(partial(self._mirror.part, path, len(data), BLOCK)):
            data += part
        clean = redacted(data.decode("utf-8", "surrogateescape"))
        with open(self._run.path / LOG, "wb", opener=private) as log:
            log.write(clean.encode("utf-8", "surrogateescape"))

    def _answer(self) -> None:
        """Send the user's answers to the run's questions."""
        for number, value in list(self._replies.items()):
            self._channel.ask("reply", number=number, value=value)
            del self._replies[number]

    def _heed(self) -> None:
        """After Ctrl-C, ask the remote training once to stop."""
        if self._flag.requested and not self._stopped:
            if not self._trains:
                raise self._run.interrupted()
            self._channel.ask("stop")
            self._stopped = True

    def _persist[T](self, act: Callable[[], T]) -> T:
        """Call a function; after a broken connection, reconnect and call it again."""
        return self._reconnect.call(act, self._channel.open)

    def _require_no_signal(self) -> None:
        if self._flag.requested:
            raise _not_interrupted(self._run, self._where)

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

    def _forget(self) -> None:
        """Remove the run from the machine, after all files were fetched."""
        left = self._left()
        try:
            waits_s = SHORT_S if self._shell.key_file is None else ()
            Reconnect(self._where, self._progress, waits_s).call(
                lambda: self._channel.ask("finish"), self._channel.open, 2
            )
        except ComputeError as error:
            if self._shell.key_file is None:  # a rented one may end before its answer
                record = self._run.record()["elsewhere"]
                left[record["address"]] = record
                remark = (
                    f"All of the run is in {self._run.path}. {self._where} could not "
                    f"be asked to remove its copy, {self._folder}: {error}"
                )
                self._progress(Warned(remark))
        self._run.write_record(elsewhere=None, left=left)

    def _left(self) -> dict[str, Any]:
        """Return the other machines that may have a copy of the run, by address."""
        left = _machines_of(self._run)
        left.pop(str(self._where), None)
        return left

    def _ended_with(self, outcome: dict[str, Any]) -> AgentGymError:
        """Return the exception for a remote run that did not finish."""
        log = f"Its log is in {self._run.path / LOG}."
        match outcome["kind"]:
            case "interrupted":
                return self._run.interrupted()
            case "limit":
                words = f"on {self._where}, {outcome['message']}"
                return TrainingHalted(str(self._run.path), words)
            case "lost":
                return ComputeError(
                    f"The training on {self._where} is gone without a message: the "
                    f"machine was restarted, or the process was killed. {log}"
                )
            case "killed":
                memory = ", as it is when memory runs out"
                why = memory if outcome["code"] == _OUT_OF_MEMORY else ""
                return ComputeError(
                    f"The training on {self._where} was killed (exit code "
                    f"{outcome['code']}{why}). {log}"
                )
        message = self._upload.with_local_paths(outcome["message"], self._folder)
        kind = getattr(errors, outcome["type"], None)
        if not (isinstance(kind, type) and issubclass(kind, AgentGymError)):
            return ComputeError(
                f"The training on {self._where} failed: {outcome['type']}: {message}. "
                f"{log}"
            )
        error = kind.__new__(kind)
        error.args = (message,)
        if isinstance(error, errors.TrainingFailedError):
            error.resumable = outcome["resumable"]
        return error


class Mirror:
    """Fetches one run's files; the checkpoints and the database stay complete.

    Files come into the folder ``.incoming`` first, and are then renamed.
    """

    def __init__(
        self, channel: Channel, run: RunFolder, heed: Callable[[], None]
    ) -> None:
        self._channel, self._run, self._heed = channel, run, heed
        self._name = run.path.name
        self._incoming = run.path / _INCOMING
        self._staged: dict[str, Any] | None = None

    def fetch(self) -> dict[str, Any]:
        """Fetch the run's new files; return the answer of ``RunServer.stage``."""
        if self._staged is None:
            shutil.rmtree(self._incoming, ignore_errors=True)
            home = {path.name: version(path) for path in self._run.checkpoints()}
            self._staged, _ = self._channel.ask("stage", run=self._name, have=home)
        staged: dict[str, Any] = self._staged
        for name, (size, blocks) in staged["files"].items():
            self._fetch(name, size, blocks)
        self._staged = None
        return staged

    def fetched_checkpoints(self) -> list[Path]:
        """Return the checkpoints that were fetched and not placed yet."""
        return sorted((self._incoming / "checkpoints").glob("step-*"))

    def _fetch(self, name: str, size: int, blocks: list[str]) -> None:
        """Fetch the blocks of a file that differ from the local ones."""
        if not is_below(name):
            raise ComputeError(
                f"The machine offers a file named {quoted(name)}, which would be "
                "written outside of the run's folder. Do not use that machine."
            )
        old, new = self._run.path / name, self._incoming / name
        new.parent.mkdir(parents=True, exist_ok=True)
        if old.exists() and not new.exists():
            shutil.copyfile(old, new)
        _, have = digests(new)
        with open(new, "r+b" if new.exists() else "w+b", opener=private) as file:
            for index, digest in enumerate(blocks):
                if have[index : index + 1] != [digest]:
                    file.seek(index * BLOCK)
                    left = min(BLOCK, size - index * BLOCK)
                    file.write(self.part(f"outbox/{name}", index * BLOCK, left))
            file.truncate(size)
            file.flush()
            os.fsync(file.fileno())

    def place(self, staged: dict[str, Any]) -> None:
        """Move fetched files into the run: the database first, checkpoints last."""
        # Each checkpoint records how many rollouts the database has.
        path, names = self._run.path, staged["files"]
        if DATABASE in names:
            for log in ("-wal", "-shm"):  # left by an earlier local training
                (path / f"{DATABASE}{log}").unlink(missing_ok=True)
        whole = ("checkpoints/", "agent/")
        files = [name for name in names if not name.startswith(whole)]
        for name in sorted(files, key=lambda name: name != DATABASE):
            (path / name).parent.mkdir(parents=True, exist_ok=True)
            (self._incoming / name).replace(path / name)
        for new in (*reversed(self.fetched_checkpoints()), self._incoming / "agent"):
            if new.exists():
                target = path / new.relative_to(self._incoming)
                shutil.rmtree(target, ignore_errors=True)
                new.rename(target)
        shutil.rmtree(self._incoming, ignore_errors=True)
        for old in self._run.checkpoints() if staged["all"] else ():
            if old.name not in staged["all"]:
                shutil.rmtree(old)

    def part(self, path: str, offset: int, length: int) -> bytes:
        """Return a part of a remote file."""
        self._heed()
        return self._channel.ask("get", path=path, offset=offset, length=length)[1]


def _pack(run: RunFolder, config: dict[str, Any], file: IO[bytes]) -> None:
    """Write a run's files, with other settings, into a tar archive."""
    with (
        tempfile.TemporaryDirectory() as scratch,
        tarfile.open(fileobj=file, mode="w") as tar,
    ):
        record = Path(scratch) / "run.json"
        record.write_text(json.dumps({**run.record(), "config": config}))
        tar.add(record, "run.json")
        for name in (*_SENT, *(path.name for path in run.path.glob(f"{AUDIT_FILE}*"))):
            if (run.path / name).exists():
                tar.add(run.path / name, name)
        if (run.path / DATABASE).exists():
            copy_database(run.path / DATABASE, Path(scratch) / DATABASE)
            tar.add(Path(scratch) / DATABASE, DATABASE)


def _save_agent(text: str, run: RunFolder, config: TrainingConfig) -> TrainingResult:
    """Save the trained agent of a finished run; return its result with local paths."""
    settings = config.model_dump(mode="json")
    agent = TrainedAgent.load((run.path / "agent").resolve())
    where = {"base_model": config.model, "config": settings}
    agent.provenance = agent.provenance.model_copy(
        update={**where, "run": str(run.path.resolve()), "folder": str(Path.cwd())}
    )
    agent.write_card()
    found = json.loads(text)
    found["config"] = settings
    found["artifacts"] = {"run": str(run.path), "agent": str(run.path / "agent")}
    found["saved"] = keep(agent, config.agent_name).model_dump(mode="json")
    result = TrainingResult.model_validate(found)
    result.write()
    return result
