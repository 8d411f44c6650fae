"""Both ends of a run on another machine.

On the remote machine: ``run_server`` answers requests, ``trainee`` trains. On the
client: ``channel`` sends requests, ``package`` and ``upload`` collect the files,
``prepare`` installs them, ``mirror`` fetches the results. ``progress_lines`` has the
run's progress events, as lines of JSON.
"""
