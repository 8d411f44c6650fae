"""Headings of settings, in ``--help`` and in the documentation."""

AGENT = "Agent"
TASKS = "Tasks"
JUDGE = "Judge"
MODEL = "Model and engine"
TRAINING = "Training"
LEARNING = "Learning"
ROLLOUTS = "Rollouts"
MEASURING = "Measuring"
MACHINE = "Machine"
RUN = "Run"
OUTPUT = "Output"
ORDER = (
    *(AGENT, TASKS, JUDGE, MODEL, TRAINING, LEARNING, ROLLOUTS, MEASURING),
    *(MACHINE, RUN, OUTPUT),
)
