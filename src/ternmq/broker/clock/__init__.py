"""The time of the broker: ``clock`` (time never goes backwards), ``timers`` (what is due when).

``timers`` also has the table of what each kind of timer does.

Invariants: nothing here asks a clock of the machine; equal times fire in the order in which they
were set.
"""
