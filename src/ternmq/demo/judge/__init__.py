"""The judges of a run: they compare what its processes wrote with the flights file.

Reading order: ``verdict`` (what they say), ``evidence`` (a group's records), ``reminders`` and
``bookings`` (groups with rules of their own), ``tables`` (what Spark made).
"""
