"""A judge is a model that ranks the successful attempts at a task.

The scenario decides which attempts are successful; this decision is called the check.

- ``settings``: check a judge's settings, and describe its price.
- ``prompt``: build the request to the judge.
- ``answer``: parse the scores in the judge's answer.
- ``group_judge``: send requests, and add the ranking to rewards.
"""
