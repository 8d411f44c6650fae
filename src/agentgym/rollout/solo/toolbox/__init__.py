"""Tools for agents: ready-made ones, one's own functions, and the workspace.

- ``calculator``, ``bash``, ``file_editor``, ``search``: one file each.
- ``functions``: one's own functions as tools; a sync one runs in a thread.
- ``workspace``: the files of one rollout, and the sandbox that all share.
- ``toolbox``: from names, settings and functions to the tools of a rollout.
"""

from agentgym.rollout.solo.toolbox.toolbox import Toolbox, tool_names

__all__ = ["Toolbox", "tool_names"]
