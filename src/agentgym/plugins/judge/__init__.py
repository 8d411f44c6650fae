"""A judge is a model that ranks the successful attempts at a task.

The scenario decides which attempts are successful; this decision is called the check.
"""
