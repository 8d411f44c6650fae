"""A judge: a model that ranks the attempts at a task that the check accepts.

- ``settings``: check a judge's settings, and describe its price.
- ``prompt``: build the request to the judge.
- ``answer``: parse the scores in the judge's answer.
- ``group_judge``: send requests, and add the ranking to rewards.
"""
