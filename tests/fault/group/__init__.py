"""Faults on the processes of a broker group: two copies, real clients, a real coordinator.

In reading order: ``brokers`` (the processes of a group, and the leadership record), ``link`` (a
connection between two processes that can be cut, in one direction too), ``load`` (workload W on
clients that know all brokers), ``clocks`` (the wall clock of a process, moved), ``checks`` (the
verdict on a group: what the primary's folder holds against the history, and the copies against each
other), ``nemesis`` (the plan of random faults), ``hands`` (does and undoes them).

``GROUP_CYCLES``: faults in a row (default: as few as show something; `make group-faults` runs ten).
``GROUP_SECONDS``, ``GROUP_SEED``: see ``test_nemesis``.
"""
