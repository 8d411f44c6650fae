"""Adapters of frameworks whose models are OpenAI's client and whose agents are plain.

One client on the gateway serves all episodes; a trained agent has one on the policy in
this process, or on a server. Each framework's own words are in its own folder.
"""
