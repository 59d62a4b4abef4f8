"""Transfers of money over three stages: each takes a message, changes the database, and sends.

In reading order: ``bank`` (the tables, the transfers, the stages), ``clerk`` (a process: it asks
for transfers, or is a stage), ``audit`` (the verdict, from outside), ``test_transfers`` (EOS-1:
everybody is killed, one after the other). Processes are forked and handled as members are:
``tests.fault.reliable``.
"""
