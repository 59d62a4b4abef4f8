"""The settings of a broker, each with its unit, default, bounds and one line of text.

Purpose: one frozen ``Settings``, made of defaults, ``ternmq.toml``, ``TERNMQ_*`` and flags. Entry
point: ``load``. Reading order: ``model.units`` (text forms of values), ``settings`` (all settings),
``fields`` (how each is read), ``rules`` (combinations that are not allowed), ``load``,
``reference`` (docs/reference/settings.md).

Invariants: an unknown key, a value out of its bounds or a broken rule is an error of one line with
the remedy; no value is corrected silently. Secrets print as ``***``.
"""

from ternmq.model.errors import SettingsError
from ternmq.model.units import Address
from ternmq.settings.load import load
from ternmq.settings.reference import reference
from ternmq.settings.settings import LogFormat, Mode, Settings

__all__ = ["Address", "LogFormat", "Mode", "Settings", "SettingsError", "load", "reference"]
