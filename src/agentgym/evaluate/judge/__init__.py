"""A judge: a model that ranks those attempts at one task that the check accepts.

- ``settings``: check a judge's settings, and show its price.
- ``prompt``: the request, with the attempts' common start written once.
- ``answer``: parse its scores.
- ``group_judge``: ask it, and add its ranking to rewards.
"""
