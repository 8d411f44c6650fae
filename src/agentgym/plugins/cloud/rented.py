"""Rented: rent a machine for a run, train on it, and end it."""

from dataclasses import replace

from agentgym.core.config import TrainingConfig
from agentgym.engines.registry import engine_name
from agentgym.errors import (
    ComputeError,
    MachineTakenError,
    NoCapacityError,
    TrainingInterrupted,
    UnsupportedError,
    UsageError,
)
from agentgym.evaluate.events import Message, Observer, Question, Warned
from agentgym.models.reference import is_remote
from agentgym.plugins.cloud.base import (
    PROVIDERS,
    Address,
    Machine,
    Provider,
    require_spot,
)
from agentgym.plugins.cloud.group import RentSettings
from agentgym.plugins.cloud.lease import KEY_FILE, Lease, Waits, end, find, remove_key
from agentgym.plugins.cloud.quote import Quote, needs_of, quotes_of
from agentgym.plugins.cloud.record import FILE as MACHINE_FILE
from agentgym.plugins.cloud.record import MachineRecord, now
from agentgym.plugins.cloud.remote import (
    KNOWN_HOSTS,
    fetch_results,
    plan_elsewhere,
    train_elsewhere,
)
from agentgym.plugins.cloud.run_server import version
from agentgym.plugins.cloud.upload import ENGINES
from agentgym.train.places import CostEstimate, Elsewhere, Place
from agentgym.train.result import TrainingResult
from agentgym.train.run_folder import RunFolder

_MOST_IN_VAIN = 3
"""A run ends if this number of spot machines in a row is taken away without a step."""


def quotes_for(config: TrainingConfig, done: int = 0) -> list[Quote]:
    """Ask the provider in ``config.gpu`` for offers, and return quotes for the run."""
    provider = _provider(config)
    kind = config.gpu.partition(":")[2]
    offers = provider.offers()
    if kind:
        named = [o for o in offers if kind.lower() in f"{o.kind} {o.gpu}".lower()]
        if not named:
            known = ", ".join(dict.fromkeys(offer.gpu for offer in offers))
            raise UsageError(f"{provider.name} has no GPU {kind!r}. It has: {known}.")
        if all(offer.is_arm for offer in named):
            raise UsageError(
                f"{named[0].gpu} has an ARM processor, for which AgentGym's packages "
                "are not tested. Name another GPU."
            )
        offers = named
    return quotes_of(offers, config, done)


class Rented(Place):
    """Trains on rented machines; ``config.gpu`` is ``PROVIDER`` or ``PROVIDER:GPU``."""

    waits = Waits()

    def plan(self, config: TrainingConfig) -> Elsewhere:
        """Return the plan of a run, without a request to the provider."""
        return plan_elsewhere(config, f"rented of {_provider(config).name}")

    def prices(self, config: TrainingConfig) -> CostEstimate | None:
        """Ask the provider for offers that can train the run."""
        from agentgym.plugins.cloud.quote import quote_view

        quotes = quotes_for(config)
        return CostEstimate([quote.record() for quote in quotes], quote_view(quotes))

    def train(
        self, config: TrainingConfig, run: RunFolder, progress: Observer
    ) -> TrainingResult:
        """Rent a machine, train on it, and end it."""
        try:
            with run.recorded(config):
                return self._train(config, run, progress)
        except ComputeError:
            record = MachineRecord.read(run.path)
            if record is not None and record.fate == "never" and not record.before:
                (run.path / MACHINE_FILE).unlink()
            run.discard_unless_begun()  # keep a folder only if it has results
            raise

    def _train(
        self, config: TrainingConfig, run: RunFolder, progress: Observer
    ) -> TrainingResult:
        """Train on a machine; if it is taken away, continue on another one."""
        terms, in_vain, saved = config, 0, _saved(run)
        while True:
            try:
                return self._train_once(config, terms, run, progress)
            except MachineTakenError:
                taken = MachineRecord.read(run.path)
                if taken is None or taken.fate != "taken" or taken.limit is None:
                    raise  # it may still cost money
                before, saved = saved, _saved(run)
                in_vain = in_vain + 1 if saved == before else 0
                if in_vain == _MOST_IN_VAIN:
                    raise MachineTakenError(
                        f"{in_vain} spot machines in a row were taken away before a "
                        f"step was saved. {taken.words()} Nothing saved is lost; "
                        "--no-spot goes on on a machine that is not taken away."
                    ) from None
                after = f"goes on after step {saved[0]}" if saved else "begins again"
                words = f"{taken.words()} The run {after}, on another machine."
                progress(Warned(words))
                # The terms of the first machine hold for all of them.
                whole = taken.before + taken.limit
                terms = config.replaced(rent={"max_cost": whole}, yes=True)
            except (NoCapacityError, UsageError) as error:
                if terms is config:
                    raise
                raise MachineTakenError(
                    "The run's spot machine was taken away, and no other machine can "
                    f"be rented: {error} Nothing saved is lost."
                ) from None

    def _train_once(
        self,
        config: TrainingConfig,
        terms: TrainingConfig,
        run: RunFolder,
        progress: Observer,
    ) -> TrainingResult:
        """Train on the run's existing machine; if there is none, rent one."""
        provider = _provider(config)
        held = self._held(provider, run, progress)
        earlier = MachineRecord.read(run.path)
        if held is not None and earlier is not None:
            limit = _rest_of(RentSettings.of(terms), earlier.before) or earlier.limit
            quotes = []
        else:
            quotes = _quotes_left(terms, run, earlier)
            _require_consent(quotes[0], terms, progress)
            if quotes[0].need.engine == "local":
                config = config.replaced(engine="local")
            limit = quotes[0].limit
            (run.path / KNOWN_HOSTS).unlink(missing_ok=True)  # of an earlier machine
        lease = Lease(
            provider,
            [quote.offer for quote in quotes],
            run.path,
            max_hourly=RentSettings.of(config).max_hourly,
            limit=limit,
            earlier=earlier,
            held=held,
            report=lambda text: progress(Message(text)),
            waits=self.waits,
            rescue=lambda: fetch_results(lease.address, lease.key_file, run),
        )
        try:
            with lease:
                return _train_on(lease, config, run, progress)
        except (KeyboardInterrupt, TrainingInterrupted):
            lost = "later results of its machine are lost" if lease.lost else ""
            ended = run.interrupted(lost)
            ended.add_note(lease.outcome)
            raise ended from None

    def fetch_results(self, config: TrainingConfig, run: RunFolder) -> str | None:
        """Fetch finished files, and end the run's machine."""
        record = MachineRecord.read(run.path)
        if record is None or not record.is_open:
            return None
        problems, key = [], run.path / KEY_FILE
        try:
            if record.address and key.is_file():
                fetch_results(Address.parse(record.address), key, run)
        except ComputeError as error:
            problems.append(str(error))
        try:
            end_recorded(record, run, self.waits)
        except ComputeError as error:
            problems.append(str(error))
        return " ".join(problems) or None

    def _held(
        self, provider: Provider, run: RunFolder, progress: Observer
    ) -> Machine | None:
        """Return the run's existing machine; end it if it cannot be used."""
        record = MachineRecord.read(run.path)
        if record is None or not record.is_open:
            return None
        if record.provider == provider.name and (run.path / KEY_FILE).is_file():
            found = find(provider, record.name, replace(self.waits, looks=2))
            if found is not None:
                progress(Message(f"The run's machine is still there: {record.words()}"))
                return found
        progress(Message(end_recorded(record, run, self.waits).words()))
        return None


def _quotes_left(
    terms: TrainingConfig, run: RunFolder, earlier: MachineRecord | None
) -> list[Quote]:
    """Return quotes for the rest of a run and of its cost limit."""
    spent = 0.0 if earlier is None else earlier.total
    rest, state = _rest_of(RentSettings.of(terms), spent), run.load_state()
    done = state[0].episodes if state else 0
    quotes = quotes_for(terms.replaced(**{"rent.max_cost": rest}), done)
    if earlier is not None and earlier.fate == "taken":  # not the same again
        same = (earlier.kind, earlier.region)
        quotes.sort(key=lambda quote: (quote.offer.kind, quote.offer.region) == same)
    return quotes


def _train_on(
    lease: Lease, config: TrainingConfig, run: RunFolder, progress: Observer
) -> TrainingResult:
    """Train on a rented machine; raise MachineTakenError if it was taken away."""
    try:
        return train_elsewhere(
            config,
            lease.address,
            lease.key_file,
            run,
            progress,
            ending=lease.ending,
            require_machine=lease.require_machine,
        )
    except ComputeError as error:
        if not isinstance(error, MachineTakenError):
            lease.require_machine(True)
        raise


def _saved(run: RunFolder) -> tuple[int, str] | None:
    """Return the step and version of a run's newest checkpoint; None without one."""
    found = run.checkpoints()
    if not found:
        return None
    return int(found[-1].name.removeprefix("step-")), version(found[-1])


def _rest_of(rent: RentSettings, spent: float) -> float | None:
    """Return ``max_cost`` minus ``spent``, in $; None if ``max_cost`` is not set."""
    if rent.max_cost is None:
        return None
    if spent >= rent.max_cost:
        raise UsageError(
            f"The run's machines have cost ${spent:.2f} already, and --max-cost is "
            f"${rent.max_cost:.2f}. Raise it to go on."
        )
    return rent.max_cost - spent


def end_recorded(record: MachineRecord, run: RunFolder, waits: Waits) -> MachineRecord:
    """End the machine in a run's record; write and return the updated record."""
    provider = PROVIDERS.get(record.provider)
    found = find(provider, record.name, replace(waits, looks=2))
    end(provider, found or record.machine, waits)
    remove_key(run.path)
    if found is None:
        return record.found_gone().write(run.path)
    return record.changed(fate="ended", ended=now()).write(run.path)


def _provider(config: TrainingConfig) -> Provider:
    """Return the provider in ``config.gpu``, after checking the settings."""
    provider = PROVIDERS.get(config.gpu.partition(":")[0])
    if engine_name(config) not in ENGINES:
        raise UnsupportedError(
            f"engine = {config.engine!r} with gpu = {config.gpu!r}: a rented machine "
            f"has one GPU, and trains with --engine {' or '.join(ENGINES)}."
        )
    if config.deterministic:
        raise UnsupportedError(
            f"deterministic = true with gpu = {config.gpu!r}: bit-for-bit repetition "
            "is supported on the CPU only. Use --gpu none, or leave deterministic out."
        )
    if is_remote(config.model):
        raise UnsupportedError(
            f"model = {config.model!r} answers behind a server: it can be measured, "
            "with `agentgym eval`, not trained. Train a folder or a Hugging Face id."
        )
    if RentSettings.of(config).spot:
        require_spot([provider])
    provider.check()
    needs_of(config)  # refuse before a request
    return provider


def _require_consent(quote: Quote, config: TrainingConfig, progress: Observer) -> None:
    """Ask the user to agree to the quote; with ``config.yes``, only show it."""
    words = quote.words()
    if config.yes:
        for each in words:
            progress(Message(each))
        return
    answer = progress(Question("rent", tuple(words), "Rent it?"))
    if answer is None:
        raise UsageError(
            f"{' '.join(words)} Nothing was rented, since this is not a terminal and "
            "the question cannot be asked: give --yes to rent it."
        )
    if not answer:
        raise UsageError("Nothing was rented, and nothing trained.")
