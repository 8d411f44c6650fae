"""The code that runs inside the sandbox.

A zygote is a long-lived interpreter that forks one child process per execution. These
modules import only the standard library and each other, because ``agentgym`` and its
dependencies are not visible inside the sandbox. Inside, this package has another name.

- ``settings``: the settings that host and guest share.
- ``zygote``: the loop that forks a child per execution, watches it, and cleans up.
- ``watch``: measures the resources of an execution while it runs.
- ``box``: the private folders of one execution.
- ``child``: the forked process: confines itself, writes the files, runs the command.
- ``confine``: sets resource limits, changes the user, applies Landlock and seccomp.
- ``landlock``, ``seccomp``, ``libc``: the system calls that ``confine`` needs.
- ``testrun``: the built-in test runner.
- ``steps``: compilers and test runners of other languages; ``node_runner.mjs`` and
  ``node_tests.mjs`` run inside Node.js.
- ``plain``: converts a value to text, in the sandbox and on the host.
"""
