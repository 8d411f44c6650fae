"""Tasks: one problem each, made from a seed, with a goal that can be checked."""

from enum import StrEnum
from typing import Any

from pydantic import BaseModel, ConfigDict, Field


class Split(StrEnum):
    """Which part of a scenario's tasks: nothing of one occurs in another.

    ``OUT_OF_VOCABULARY`` is the test split in words that nothing else uses.
    """

    TRAIN = "train"
    VALIDATION = "validation"
    TEST = "test"
    OUT_OF_VOCABULARY = "out_of_vocabulary"


class Task(BaseModel):
    """One problem for the agent.

    Attributes:
        id: Unique within the scenario and stable for a seed.
        split: The split that the task belongs to.
        seed: What the task was made from.
        family: The kind of problem, e.g. ``"read_file"``; batches are stratified
            by it.
        level: 1 (one call), 2 (several calls under rules) or 3 (open-ended).
        instruction: What the user says.
        initial_state: What the environment starts from; JSON values only.
        goal: What calculate_reward checks; the agent never sees it.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    id: str
    split: Split
    seed: int
    family: str
    level: int = Field(ge=1, le=3)
    instruction: str
    initial_state: dict[str, Any] = Field(default_factory=dict)
    goal: dict[str, Any] = Field(default_factory=dict)
