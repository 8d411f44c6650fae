"""vLLM answers, as a process of its own; the learner of this process learns."""
