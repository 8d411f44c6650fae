"""Train on a remote machine, controlled from the client (the user's machine).

On the remote machine, ``run_server`` answers requests and ``trainee`` trains. On the
client, ``channel`` sends requests, ``package`` and ``upload`` collect the files,
``prepare`` installs the packages, ``mirror`` fetches the results. ``progress_lines``
transfers progress events as JSON lines.
"""
