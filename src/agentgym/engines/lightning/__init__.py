"""The lightning engine: Agent Lightning's trainer learns and serves, our loop decides.

``hooks`` and ``train`` run in its own environment; see the README of this folder.
"""
