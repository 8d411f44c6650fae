"""The common parts of adapters for frameworks whose models use OpenAI's client."""
