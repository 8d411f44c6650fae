"""The code that runs inside the sandbox.

A zygote is a long-lived interpreter that forks one child process per execution. These
modules import only the standard library and each other, because ``agentgym`` and its
dependencies are not visible inside the sandbox. There, this package has the name
``_agentgym_guest``.
"""
