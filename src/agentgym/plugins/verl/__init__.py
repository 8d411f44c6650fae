"""The verl engine: verl's workers on Ray train and serve; AgentGym controls them.

The module ``driver``, and the modules that it imports, run in verl's own environment.
So they import almost nothing else of AgentGym; see the README of this folder.
"""
