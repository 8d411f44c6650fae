"""The common parts of adapters for frameworks whose models use OpenAI's client.

In training, one client calls the gateway for all episodes. A trained agent gets a
client that calls a server, or the policy in this process. Code for a single framework
is in that framework's folder.
"""
