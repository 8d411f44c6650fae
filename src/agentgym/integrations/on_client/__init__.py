"""The common parts of adapters for frameworks that take OpenAI's client.

In training, one such client for the gateway serves all episodes. A trained agent gets a
client for a server, or for the policy in this process. The parts of one framework are
in that framework's folder.
"""
