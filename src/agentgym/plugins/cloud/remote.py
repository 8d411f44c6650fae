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
from pathlib import Path
from typing import IO, Any

from agentgym import errors
from agentgym.core.config import TrainingConfig
from agentgym.core.files import is_below
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
from agentgym.security.private import private
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
_FIRST = ("baseline", "warm_start", "warmed", "first_validation")
"""Keys that are added to ``state.json`` of step 0 one after the other.

The file is written again each time, so an older copy lacks some of them."""
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
    """Trains on a machine that the user can log in to, with ``--gpu ssh:user@host``.

    Training continues if the client disconnects.
    """

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
    if upload.engine:
        where = ", if its GPU has room" * upload.may_choose
        installs.append(
            f"the environment of {upload.engine}{where}, unless it is installed"
        )
    return Elsewhere(
        config=config,
        machine=machine,
        uploads={name: path.stat().st_size for name, path in upload.files.items()},
        installs=installs,
        variables=list(upload.variables),
        folder=f"~/{FOLDER}",
        engine=_MAY_CHOOSE if upload.may_choose else "",
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
    measured: Callable[[float], None] = lambda seconds: None,
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
            return followed.run(order, measured, require_machine)


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
    """Return a shell whose first connection is retried as long as that is worth it.

    That is ten minutes if the machine is rented, since it is ended if the connection
    fails, and seconds if the machine is the user's own and already has the run.
    """
    known = str(address) in _machines_of(run)
    waits_s = LONG_S if key_file is not None else SHORT_S if known else ()
    meanwhile = _MEANWHILE if known else ""
    own = None if key_file is None else run.path.absolute() / KNOWN_HOSTS
    again = Reconnect(address, progress, waits_s, meanwhile, require_machine)
    return Shell(address, key_file, own, again)


def _machines_of(run: RunFolder) -> dict[str, Any]:
    """Return the entries of ``run.json`` for machines that may have a copy of the run.

    The keys are the machines' addresses.
    """
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
        name = f"{run.path.name}-{uuid.uuid4().hex[:8]}"
        self._id = name if known is None else known["id"]
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
        self._replayed = self._said = 0
        self._unsaid = b""

    def __enter__(self) -> "_Followed":
        self._reconnect.heed = self._require_no_signal
        return self

    def __exit__(self, *error: object) -> None:
        self._flag.__exit__(*error)
        self._channel.close()

    def run(
        self,
        order: Callable[[], dict[str, Any]],
        measured: Callable[[float], None],
        require_machine: Callable[[bool], None],
    ) -> TrainingResult:
        """Start the run unless it trains, show its progress, and fetch its files."""
        state = self._opened()
        has_run, there = state["state"] != "none", []
        if is_ahead := has_run and self._persist(self._mirror.continues_local):
            there = self._persist(self._mirror.pull)["all"]
        elif has_run:
            self._give_up(state)
        if not (is_ahead and self._is_worth_following(state)):
            try:
                self._start(order, there, state["attempt"] + 1)
            except UnreachableError:
                raise
            except BaseException:
                if not (has_run or self._trains):
                    self._clear()
                raise
        outcome = self._follow(measured)
        files = self._persist(self._mirror.pull)
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
            if self._persist(self._mirror.continues_local):
                self._end(state)
                self._persist(self._mirror.pull)
            else:
                self._give_up(state)
        self._forget()

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
            state = self._persist(
                lambda: self._channel.ask("poll", offset=_END, log=_END)
            )[0]
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

    def _is_worth_following(self, state: dict[str, Any]) -> bool:
        """Return whether the remote run is training, or has trained all episodes."""
        if state["state"] == "running":
            return True
        is_done = state["state"] == "ended" and state["outcome"]["kind"] == "done"
        record = self._run.record()
        known = record.get("elsewhere") or {}
        return is_done and bool(known.get("episodes") == record["config"]["episodes"])

    def _start(
        self, order: Callable[[], dict[str, Any]], there: list[str], number: int
    ) -> None:
        """Send the run's files, and start training on the machine."""
        self._progress(Message(f"Sending the run to {self._where}."))
        with tempfile.TemporaryFile() as file:
            self._upload.write(file)
            self._send(file, "inputs")
        here = [path.name for path in self._run.checkpoints()]
        sent = self._sent.model_dump(mode="json")
        if here and here[-1:] != there[-1:]:
            with tempfile.TemporaryFile() as file:
                _pack(self._run, sent, file)
                self._send(file, f"runs/{self._run.path.name}")
        elsewhere = {
            "address": str(self._where),
            "id": self._id,
            "python": self._ready.python,
            "home": self._ready.home,
            "episodes": self._sent.episodes,
        }
        self._run.write_record(elsewhere=elsewhere, left=self._left())
        train = {
            "folder": f"{self._folder}/inputs",
            "config": sent,
            "resume": bool(here),
            "variables": self._upload.variables,
        }
        self._let_train()
        payload = json.dumps({"train": train, **order()}).encode()
        self._persist(lambda: self._channel.ask("start", payload, number=number))
        (self._run.path / LOG).unlink(missing_ok=True)

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

    def _follow(self, measured: Callable[[float], None]) -> dict[str, Any]:
        """Show progress and fetch files until training ends; return its outcome."""
        is_due, rest_until, longest = False, 0.0, 0.0
        while True:
            state = self._persist(self._hear)
            is_due |= state["has_made"]
            self._persist(self._answer)
            if state["state"] == "lost":
                return {"kind": "lost"}
            if state["state"] == "ended" and not state["has_more"]:
                outcome: dict[str, Any] = state["outcome"]
                return outcome
            if is_due and time.monotonic() >= rest_until:
                begun = time.monotonic()
                self._persist(self._mirror.pull)
                now = time.monotonic()
                is_due, rest_until = False, now + _REST * (now - begun)
                longest = max(longest, now - begun)
                measured(longest)

    def _hear(self) -> dict[str, Any]:
        """Fetch new progress events and output; show the events, log the output."""
        self._heed()
        state, data = self._channel.ask("poll", offset=self._replayed, log=self._said)
        events, said = data[: state["events"]], data[state["events"] :]
        self._replayed += len(events)
        self._said += len(said)
        self._log(said)
        made = replay_progress(
            events, self._progress, self._planned, self._replies.__setitem__
        )
        return {**state, "has_made": made, "has_more": bool(data)}

    def _log(self, said: bytes) -> None:
        """Append the complete lines of remote output to the local log."""
        text = self._unsaid + said
        end = text.rfind(b"\n") + 1 if said else len(text)
        lines, self._unsaid = text[:end], text[end:]
        if lines:
            clean = redacted(lines.decode("utf-8", "surrogateescape"))
            with open(self._run.path / LOG, "ab", opener=private) as log:
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
        """Remove the run from the machine, after all files were fetched.

        A rented machine may end before its answer arrives, so errors are ignored. On
        the user's own machine, the request is repeated after a broken connection. If
        it fails, a warning names the folder that remains.
        """
        left = self._left()
        try:
            waits_s = SHORT_S if self._shell.key_file is None else ()
            Reconnect(self._where, self._progress, waits_s).call(
                lambda: self._channel.ask("finish"), self._channel.open, 2
            )
        except ComputeError as error:
            if self._shell.key_file is None:
                record = self._run.record()["elsewhere"]
                left[record["address"]] = record
                remark = (
                    f"All of the run is in {self._run.path}. {self._where} could not "
                    f"be asked to remove its copy, {self._folder}: {error}"
                )
                self._progress(Warned(remark))
        self._run.write_record(elsewhere=None, left=left)

    def _left(self) -> dict[str, Any]:
        """Return the entries of ``run.json`` for other machines that may have the run.

        The keys are the machines' addresses.
        """
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

    def continues_local(self) -> bool:
        """Return whether the remote run continues the newest local checkpoint.

        It does if this checkpoint's ``state.json``, and all metrics up to its step, are
        the same on both machines. If it does not, the run has continued locally or on a
        third machine, and the remote files must not be fetched.
        """
        found = self._run.checkpoints()
        if not found:
            return True
        newest, folder = found[-1], f"runs/{self._name}"
        step = int(newest.name.removeprefix("step-"))
        lines = [json.dumps(e) for e in self._run.metrics() if e["step"] <= step]
        message = "".join(f"{line}\n" for line in lines).encode()
        if self._whole(f"{folder}/metrics.jsonl", len(message)) != message:
            return False
        state = (newest / "state.json").read_bytes()
        there = self._whole(f"{folder}/checkpoints/{newest.name}/state.json")
        if there in (b"", state):  # b"": newer checkpoints may have replaced it
            return True
        mine, theirs = json.loads(state), json.loads(there)
        return step == 0 and all(mine[k] in (None, {}, theirs[k]) for k in _FIRST)

    def _whole(self, path: str, most: int = 1 << 30) -> bytes:
        """Return up to ``most`` bytes of a remote file; ``b""`` if it is missing."""
        found = b""
        while part := self._part(path, len(found), most - len(found)):
            found += part
        return found

    def pull(self) -> dict[str, Any]:
        """Fetch the run's new files; return the answer of ``RunServer.stage``.

        After a broken connection, the next call goes on where this one stopped. Call
        this method only if :meth:`continues_local` returns True; otherwise newer local
        files may be lost.
        """
        home = {path.name: version(path) for path in self._run.checkpoints()}
        if self._staged is None:
            shutil.rmtree(self._incoming, ignore_errors=True)
            self._staged, _ = self._channel.ask("stage", run=self._name, have=home)
        staged: dict[str, Any] = self._staged
        for name, (size, blocks) in staged["files"].items():
            self._fetch(name, size, blocks)
        self._place(staged["files"])
        for name in home.keys() - set(staged["all"]) if staged["all"] else ():
            shutil.rmtree(self._run.path / "checkpoints" / name, ignore_errors=True)
        self._staged = None
        return staged

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
                    file.write(self._part(f"outbox/{name}", index * BLOCK, left))
            file.truncate(size)
            file.flush()
            os.fsync(file.fileno())

    def _place(self, names: dict[str, Any]) -> None:
        """Move fetched files into the run: the database first, checkpoints last.

        Each checkpoint records how many rollouts the database has.
        """
        path = self._run.path
        if DATABASE in names:
            for log in ("-wal", "-shm"):  # left by an earlier local training
                (path / f"{DATABASE}{log}").unlink(missing_ok=True)
        checkpoints, agent = self._incoming / "checkpoints", self._incoming / "agent"
        whole = ("checkpoints/", "agent/")
        files = [name for name in names if not name.startswith(whole)]
        for name in sorted(files, key=lambda name: name != DATABASE):
            (path / name).parent.mkdir(parents=True, exist_ok=True)
            (self._incoming / name).replace(path / name)
        for new in (*sorted(checkpoints.glob("*"), reverse=True), agent):
            if new.exists():
                target = path / new.relative_to(self._incoming)
                shutil.rmtree(target, ignore_errors=True)
                new.rename(target)
        shutil.rmtree(self._incoming, ignore_errors=True)

    def _part(self, path: str, offset: int, length: int) -> bytes:
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
