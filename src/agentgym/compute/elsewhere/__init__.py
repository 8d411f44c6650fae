"""Both ends of a run on another machine.

There: ``there`` answers what home asks, ``trainee`` trains. At home: ``channel`` asks,
``package`` and ``parcel`` are what is sent, ``prepare`` installs it, ``mirror`` brings
home what is made. ``telling`` is what a run tells, in lines of JSON.
"""
