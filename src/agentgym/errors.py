"""All errors that AgentGym raises on purpose, in one class hierarchy.

Each message names the problem, quotes the value and says how to solve it. The command
line prints only the message, and exits with :attr:`AgentGymError.exit_code`.
"""

import shlex
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pydantic import ValidationError

_PYDANTICS = "https://errors.pydantic.dev/"


def _nearest(value: str, known: Iterable[str]) -> str:
    """Return " Did you mean 'x'? Available: a, b." for an unknown ``value``."""
    from difflib import get_close_matches

    names = sorted(known, key=lambda name: (name.rstrip("0123456789"), len(name), name))
    written = {name.lower(): name for name in names}
    close = get_close_matches(value.lower(), written, n=1, cutoff=0.4)
    hint = f" Did you mean {written[close[0]]!r}?" if close else ""
    return f"{hint} Available: {', '.join(names) or 'none'}."


def resume_hint(run: str) -> str:
    """Return a sentence with the command that resumes the run in folder ``run``."""
    return f"Continue with: agentgym train --resume {shlex.quote(run)}"


def message_of(error: BaseException) -> str:
    """Return an error's message, without pydantic's links to its documentation."""
    lines = str(error).splitlines()
    return "\n".join(line for line in lines if _PYDANTICS not in line).strip()


def first_line(error: BaseException) -> str:
    """Return the first line of an error's message."""
    return str(error).strip().partition("\n")[0]


def first_problem(error: "ValidationError") -> str:
    """Return the first problem of a validation error, as ``field: message``."""
    first = error.errors()[0]
    said = first["msg"].removeprefix("Value error, ")
    place = ".".join(map(str, first["loc"]))
    if not place and first["type"] == "value_error":  # its text names the field
        return said
    return f"{place or 'it'}: {said}"


def unreadable(error: Exception) -> str:
    """Return in a few words why a file cannot be read, or means nothing."""
    from pydantic import ValidationError  # slow to import

    if isinstance(error, ValidationError):
        return first_problem(error)
    if isinstance(error, UnicodeDecodeError):
        return "it is not a text in UTF-8"
    return (isinstance(error, OSError) and error.strerror) or first_line(error)


class AgentGymError(Exception):
    """Base of all errors of this package.

    Attributes:
        exit_code: The command line's exit code: 2 for wrong usage, 130 after Ctrl-C,
            and 1 for other failures.
    """

    exit_code = 1

    def __str__(self) -> str:
        """Return the message, with secrets removed."""
        from agentgym.security.redaction import redacted

        return redacted(super().__str__())


class UsageError(AgentGymError):
    """An invalid value or option from the caller."""

    exit_code = 2

    def __init__(self, message: str, options: Sequence[str] | None = None) -> None:
        super().__init__(message)
        self.options = options  # with which to try the same command; None if unknown


class NextCommand(UsageError):
    """The caller has to choose first; ``options`` are those of the command to run."""


class ConfigError(UsageError):
    """A training configuration that does not validate (unknown key, bad value)."""


class UnsupportedError(UsageError):
    """An agent, a model or a combination of settings that is not supported."""


class NotFoundError(UsageError):
    """An unknown name; the message suggests the nearest name and lists all names.

    Attributes:
        name: The unknown name.
    """

    def __init__(
        self, thing: str, name: str, known: Iterable[str], hint: str = ""
    ) -> None:
        self.name = name
        text = f"No {thing} is named {name!r}.{_nearest(name, known)}"
        super().__init__(f"{text} {hint}".rstrip())


class ScenarioNotFoundError(NotFoundError):
    """An unknown scenario name."""

    def __init__(self, name: str, known: Iterable[str]) -> None:
        super().__init__("scenario", name, known)


class MissingExtraError(UsageError):
    """An optional dependency is not installed.

    Attributes:
        extra: Name of the pip extra with the dependency; several are comma-separated.
        purpose: The feature that needs the extra, as the start of a sentence.
    """

    def __init__(self, extra: str, purpose: str) -> None:
        from agentgym.install import install_command

        self.extra, self.purpose = extra, purpose
        several = "," in extra
        super().__init__(
            f"{purpose} need{'' if several else 's'} the extra{'s' * several} "
            f"{extra!r}, which {'are' if several else 'is'} not installed. "
            f"Install {'them' if several else 'it'} with: {install_command(extra)}"
        )


class GPUNotAvailableError(UsageError):
    """A GPU was requested and none is available."""


class NotEnoughMemoryError(UsageError):
    """A model needs more memory than its device has free."""


class ModelError(UsageError):
    """A model that cannot be loaded or cannot be trained for tool calls."""


class CorruptModelError(AgentGymError):
    """A model file that is missing, truncated or altered, or that may run code."""


class ScenarioError(AgentGymError):
    """A scenario violates its interface (reward out of range, tool without types)."""


class ToolError(AgentGymError):
    """A tool refused or failed; its message is shown to the agent as the result."""

    __str__ = Exception.__str__  # unredacted: the policy is trained on this text


class ToolExitError(RuntimeError):
    """The code of an agent's own tool called ``sys.exit()``."""


class RuleViolation(ToolError):
    """A rule of the scenario forbids a tool call; the message is shown to the agent."""


class SandboxError(AgentGymError):
    """The sandbox itself failed, not the code inside it."""


class SandboxUnavailableError(SandboxError):
    """No safe way to run untrusted code was found on this machine."""


class RolloutError(AgentGymError):
    """Running episodes failed, e.g. in a worker, the gateway or the database."""


class RecordError(RolloutError):
    """A value to be recorded is malformed, or cannot be stored as JSON."""


class StoreError(RolloutError):
    """The database of rollouts has failed; nothing is recorded any more."""


class ProviderError(RolloutError):
    """A model provider refuses all requests, so that retries are useless."""


class RolloutNotFoundError(RolloutError):
    """An unknown rollout id.

    Attributes:
        rollout_id: The unknown id.
    """

    def __init__(self, rollout_id: str) -> None:
        self.rollout_id = rollout_id
        super().__init__(f"Rollout not found: {rollout_id}")


class ModelCallError(RolloutError):
    """A model call failed, in the model's server or in the user's function."""


class NoServerError(RolloutError):
    """A model call was not sent, because none of the model's servers is usable."""


class ReplyError(RolloutError):
    """A model's answer is not a valid message."""


class ProgramError(RolloutError):
    """A user's program, or a check command, failed in an episode.

    Attributes:
        kind: Category by which failed rollouts are counted, e.g. ``program: exit``.
        is_crash: Whether the program's own code failed, not e.g. a connection.
    """

    def __init__(self, kind: str, message: str, *, is_crash: bool = False) -> None:
        self.kind = kind
        self.is_crash = is_crash
        super().__init__(message)


class RewardError(RolloutError):
    """A reward could not be computed, or is not valid."""


class TrajectoryFileError(AgentGymError):
    """A trajectory file has broken lines.

    Attributes:
        trajectories: The trajectories of the other lines.
    """

    def __init__(self, path: str, broken: list[str], trajectories: list[Any]) -> None:
        self.trajectories = trajectories
        more = f" and {len(broken) - 5} more" if len(broken) > 5 else ""
        super().__init__(
            f"{path}: {'; '.join(broken[:5])}{more}. The other {len(trajectories)} "
            "trajectories are whole: read the file with strict=False to use them."
        )


class RolloutStateError(RolloutError):
    """A request does not fit its rollout's state, e.g. the rollout has ended."""


class EngineError(AgentGymError):
    """The engine could not generate text or update the model."""


class ContextLengthError(EngineError):
    """The prompt leaves no room for an answer in the model's context."""


class PromptError(EngineError):
    """The model's chat template does not accept the messages or tools."""


class GrammarError(PromptError):
    """The requested answer format cannot be expressed as a grammar."""


class ComputeError(AgentGymError):
    """A remote machine cannot be rented, reached or used."""


class ComputeRefusedError(ComputeError):
    """A provider of machines refused a request.

    Attributes:
        status: The HTTP status; 200 if the answer was malformed. If the provider is
            used through a command, the command's exit status; 0 if the answer was
            malformed.
        code: The provider's own error code; empty if there is none.
    """

    def __init__(self, message: str, status: int, code: str = "") -> None:
        self.status, self.code = status, code
        super().__init__(message)


class NoCapacityError(ComputeError):
    """A provider has no machine of the requested type available."""


class MachineTakenError(ComputeError):
    """A provider took a spot machine away; the run can continue on another machine."""


class LimitReached(ComputeError):
    """A run on rented machines has reached its cost limit; finished steps are saved.

    Attributes:
        run: The run folder, for ``--resume``.
    """

    def __init__(self, run: str, why: str, least: float) -> None:
        self.run = run
        super().__init__(f"{why} {resume_hint(run)} --max-cost {least:.0f}")


class UnclearLaunchError(ComputeError):
    """A machine was requested, but it is unknown whether it was created."""


class UnreachableError(ComputeError):
    """A machine or its provider does not answer, or the connection to it broke.

    Attributes:
        wait_s: Seconds to wait, from the header ``Retry-After``; None without header.
    """

    def __init__(self, message: str, wait_s: float | None = None) -> None:
        self.wait_s = wait_s
        super().__init__(message)


class CheckpointError(AgentGymError):
    """A checkpoint is missing, truncated or corrupt."""


class RunFolderError(AgentGymError):
    """A run folder is in use, not writable, or not a run."""


class TrainingFailedError(AgentGymError):
    """Training ended without a usable policy.

    Attributes:
        resumable: Whether resuming the run unchanged may help.
    """

    def __init__(self, message: str, *, resumable: bool = True) -> None:
        self.resumable = resumable
        super().__init__(message)


class TrainingHalted(AgentGymError):
    """A run's files could not be written any more; finished steps are saved.

    Attributes:
        run: The run folder, for ``--resume``.
    """

    def __init__(self, run: str, why: str) -> None:
        self.run = run
        super().__init__(
            f"The run in {run} has stopped: {why.rstrip('.')}. Nothing finished is "
            "lost; fix the cause before you go on."
        )


class OutputClosed(AgentGymError):
    """The program that reads the output closed the pipe, as ``head`` does."""

    def __init__(self) -> None:
        super().__init__("The reader of the output has closed it.")


class Interrupted(AgentGymError):
    """The user interrupted a command with Ctrl-C; the message says how to continue."""

    exit_code = 130


class TrainingInterrupted(Interrupted):
    """The user interrupted a run; finished steps are saved.

    Args:
        run: The run folder, for ``--resume``; also an attribute.
        step: Step of the newest checkpoint; None if there is nothing to resume. Also an
            attribute.
        lost: Words for the message about lost work; empty if there is none.
        kept: A sentence about weights that were saved; empty if there are none.
    """

    def __init__(
        self, run: str, step: int | None, lost: str = "", kept: str = ""
    ) -> None:
        self.run, self.step, self._lost = run, step, lost
        text = "Interrupted before anything was finished: there is nothing to resume."
        if step is not None:
            what = lost or "nothing finished is lost"
            saved = f"{kept} " if kept else ""
            text = f"Interrupted after step {step}; {what}. {saved}{resume_hint(run)}"
        elif lost:
            text = f"Interrupted before any result arrived on this machine; {lost}."
        super().__init__(text)

    def keeping(self, kept: str) -> "TrainingInterrupted":
        """Return this error with a sentence about saved weights in its message."""
        return TrainingInterrupted(self.run, self.step, self._lost, kept)
