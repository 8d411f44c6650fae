"""Adapters of frameworks that use OpenAI's client and plain agent objects.

One client for the gateway serves all episodes. A trained agent's client uses the policy
in this process, or a server. Each framework's own part is in its folder.
"""
