"""A judge: a model that ranks attempts at one task, within those that a check accepts.

- ``settings``: check a judge's settings, and show its price.
- ``prompt``: the request, with the common beginning of the attempts once.
- ``answer``: read its scores.
- ``group_judge``: ask it, and put its ranking into rewards.
"""
