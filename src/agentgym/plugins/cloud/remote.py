"""Train on another machine: install, start, show progress, and fetch the results."""

import json
import tempfile
import threading
import time
import uuid
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any

from agentgym.core.config import TrainingConfig
from agentgym.errors import ComputeError, TrainingInterrupted, UnreachableError
from agentgym.evaluate.progress import Plan, Progress
from agentgym.plugins.cloud.base import Address, EndRequest
from agentgym.plugins.cloud.elsewhere.arrival import arrived, ended_with
from agentgym.plugins.cloud.elsewhere.channel import Channel
from agentgym.plugins.cloud.elsewhere.mirror import Mirror
from agentgym.plugins.cloud.elsewhere.prepare import FOLDER, Ready, prepare
from agentgym.plugins.cloud.elsewhere.progress_lines import replay_progress
from agentgym.plugins.cloud.elsewhere.upload import Upload, make_upload
from agentgym.plugins.cloud.reconnect import LONG_S, SHORT_S, Reconnect, RetryingShell
from agentgym.plugins.cloud.shell import Shell
from agentgym.plugins.cloud.watchdog import EndLimits
from agentgym.security.private import private
from agentgym.security.redaction import redacted
from agentgym.train.interrupts import InterruptFlag
from agentgym.train.result import TrainingResult
from agentgym.train.run_folder import RunFolder

LOG = "elsewhere.log"
"""Local file with the output of the remote training."""
KNOWN_HOSTS = "known_hosts"
_REST = 4.0
"""Pause between two fetches of files, as a multiple of the last fetch's time."""
_ENDING_S = 300.0
_MEANWHILE = "; the training goes on"
_END = 1 << 40
"""Offset beyond the end of any file, to get the run's state without new output."""


def train_elsewhere(
    config: TrainingConfig,
    address: Address,
    key_file: Path | None,
    run: RunFolder,
    progress: Progress,
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
    shell = _shell(address, key_file, run)
    with run.recorded(config):
        upload = make_upload(config)
        check = partial(require_machine, False)
        reconnect = _reconnect(shell, run, progress, check)
        try:
            ready = prepare(RetryingShell(shell, reconnect), upload, progress.starting)
        except KeyboardInterrupt:
            if run.record().get("elsewhere"):
                raise _not_interrupted(run, address) from None
            raise

        def order() -> dict[str, Any]:
            own = None if ending is None else asdict(ending)
            return {"limits": asdict(limits()), "ending": own}

        reconnect = Reconnect(address, progress, LONG_S, _MEANWHILE, check)
        with _Followed(shell, ready, upload, run, progress, reconnect) as followed:
            return followed.run(order, measured, require_machine)


def _not_interrupted(run: RunFolder, address: Address) -> TrainingInterrupted:
    """Return the exception for a Ctrl-C that did not reach the remote training."""
    ended = run.interrupted()
    ended.add_note(
        f"The training on {address} did not get the signal and goes on; to follow it: "
        f"agentgym train --resume {run.path}"
    )
    return ended


def fetch_results(
    address: Address, key_file: Path | None, run: RunFolder, progress: Progress
) -> None:
    """Stop a run's training on the machine that trains it, and fetch its files."""
    known = run.record().get("elsewhere")
    if not known or known["address"] != str(address):
        return
    shell = _shell(address, key_file, run)
    ready, upload = Ready(known["python"], known["home"]), make_upload(run.config())
    reconnect = _reconnect(shell, run, progress)
    with _Followed(shell, ready, upload, run, progress, reconnect) as followed:
        followed.leave()


def _shell(address: Address, key_file: Path | None, run: RunFolder) -> Shell:
    own = None if key_file is None else run.path.absolute() / KNOWN_HOSTS
    return Shell(address, key_file, own)


def _reconnect(
    shell: Shell,
    run: RunFolder,
    progress: Progress,
    require_machine: Callable[[], None] = lambda: None,
) -> Reconnect:
    """Return a Reconnect for the first connection to the machine.

    It retries for ten minutes if the machine is rented, since the machine is ended if
    the connection fails. It retries for seconds if the machine is the user's own and
    already has the run. Otherwise, it does not retry.
    """
    known = _machines_of(run).get(str(shell.address))
    waits_s: Sequence[float] = SHORT_S if known else ()
    waits_s = waits_s if shell.key_file is None else LONG_S
    meanwhile = _MEANWHILE if known else ""
    return Reconnect(shell.address, progress, waits_s, meanwhile, require_machine)


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
        self,
        shell: Shell,
        ready: Ready,
        upload: Upload,
        run: RunFolder,
        progress: Progress,
        reconnect: Reconnect,
    ) -> None:
        known = _machines_of(run).get(str(shell.address))
        name = f"{run.path.name}-{uuid.uuid4().hex[:8]}"
        self._id = name if known is None else known["id"]
        self._folder = f"{ready.home}/{FOLDER}/runs/{self._id}"
        self._where = shell.address
        self._ready, self._upload = ready, upload
        self._run, self._progress = run, progress
        self._reconnect = reconnect
        self._sent = upload.remote_config(self._folder, run.path.name)
        self._channel = Channel(shell, ready.python, self._folder)
        self._mirror = Mirror(self._channel, run, self._heed)
        self._flag = InterruptFlag()
        self._trains = self._stopped = False
        self._replies: dict[int, Any] = {}
        self._replayed = self._said = 0
        self._unsaid = b""
        if known is None:
            self._mirror.forget_parts()

    def __enter__(self) -> "_Followed":
        self._flag.__enter__()
        # The waiting code checks the flag.
        threading.Thread(target=self._flag.wait, daemon=True).start()
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
            error = ended_with(
                outcome, self._run, str(self._where), self._upload, self._folder
            )
            if not self._run.checkpoints():
                self._forget()
            raise error
        self._persist(lambda: self._mirror.pull_agent(files["agent"]))
        found = TrainingConfig.restore(files["record"]["config"])
        # Another machine may choose another engine, so this one's is not saved.
        config = self._adopted(found).replaced(engine=found.engine)
        result = arrived(files["result"], self._run, config)
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
        self._reconnect.waits_s = LONG_S
        self._trains = state["state"] == "running"
        return state

    def _give_up(self, state: dict[str, Any]) -> None:
        """Stop the remote training; warn that its later results are not used."""
        step = int(self._run.checkpoints()[-1].name.removeprefix("step-"))
        message = (
            f"The run has gone on without {self._where}, so it continues from "
            f"{self._run.path}, after step {step}. Later results of {self._where} "
            "are not used."
        )
        self._progress.warned([message])
        self._end(state)

    def _end(self, state: dict[str, Any]) -> None:
        """Stop the remote training if it is running, and wait until it has ended."""
        if state["state"] == "running":
            self._persist(lambda: self._channel.ask("stop"))
            until = time.monotonic() + _ENDING_S
            while state["state"] == "running" and time.monotonic() < until:
                state = self._persist(self._look)[0]
            if state["state"] == "running":
                raise ComputeError(
                    f"The training on {self._where} was asked to stop, and has not "
                    f"within {_ENDING_S:.0f} s. End it on that machine, and resume the "
                    "run."
                )
        self._trains = False

    def _look(self) -> tuple[Any, bytes]:
        return self._channel.ask("poll", offset=_END, log=_END)

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
        self._progress.starting(f"Sending the run to {self._where}.")
        with tempfile.TemporaryFile() as file:
            self._upload.write(file)
            self._persist(lambda: self._mirror.send(file, "inputs"))
        here = [path.name for path in self._run.checkpoints()]
        sent = self._sent.model_dump(mode="json")
        if here and here[-1:] != there[-1:]:
            self._persist(lambda: self._mirror.push(sent))
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
        self._trains = True
        payload = json.dumps({"train": train, **order()}).encode()
        self._persist(lambda: self._channel.ask("start", payload, number=number))
        (self._run.path / LOG).unlink(missing_ok=True)

    def _follow(self, measured: Callable[[float], None]) -> dict[str, Any]:
        """Show progress and fetch files until training ends; return its outcome."""
        is_due, rest_until = False, 0.0
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
                if (seconds := self._mirror.transfers.longest_s) is not None:
                    measured(seconds)

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
        while True:
            try:
                return act()
            except UnreachableError as error:
                self._reconnect.connect(
                    self._channel.open, error, self._require_no_signal
                )

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
            self._channel.ask("finish")
        except ComputeError as error:
            if self._channel.shell.key_file is None and not self._asked_again(error):
                record = self._run.record()["elsewhere"]
                left[record["address"]] = record
                remark = (
                    f"All of the run is in {self._run.path}. {self._where} could not "
                    f"be asked to remove its copy, {self._folder}: {error}"
                )
                self._progress.warned([remark])
        self._mirror.forget_parts()
        self._run.write_record(elsewhere=None, left=left)

    def _asked_again(self, error: ComputeError) -> bool:
        """Ask the machine again to remove the run; return whether that worked."""
        if not isinstance(error, UnreachableError):
            return False
        try:
            Reconnect(self._where, self._progress, SHORT_S).connect(
                self._channel.open, error
            )
            self._channel.ask("finish")
        except ComputeError:
            return False
        return True

    def _left(self) -> dict[str, Any]:
        """Return the entries of ``run.json`` for other machines that may have the run.

        The keys are the machines' addresses.
        """
        left = _machines_of(self._run)
        left.pop(str(self._where), None)
        return left
