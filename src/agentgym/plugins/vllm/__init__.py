"""The engine vllm: a separate vLLM process samples, and this process trains."""
