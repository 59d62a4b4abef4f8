"""What a broker can be told: every setting with its unit, default, bounds and one line of text.

Purpose: one frozen ``Settings``, made of defaults, ``ternmq.toml``, ``TERNMQ_*`` and flags. Entry
point: ``load``. Reading order: ``model.units`` (how values are written), ``settings`` (what there
is), ``fields`` (how each is read), ``rules`` (what does not go together), ``load``,
``reference`` (docs/reference/settings.md).

Invariants: a key that is not known, a value out of its bounds or a rule that is broken is an error
of one line that says what to do; nothing is corrected in silence. Secrets print as ``***``.
"""

from ternmq.model.errors import SettingsError
from ternmq.model.units import Address
from ternmq.settings.load import load
from ternmq.settings.reference import reference
from ternmq.settings.settings import LogFormat, Mode, Settings

__all__ = ["Address", "LogFormat", "Mode", "Settings", "SettingsError", "load", "reference"]
