"""The Markdown of ``docs/reference/settings.md``, made of the settings themselves."""

from __future__ import annotations

from ternmq.model.units import TRUTHS
from ternmq.settings.fields import FIELDS, LIMIT_FIELDS, Field
from ternmq.settings.settings import DEFAULTS, SECTIONS, Mode

_HEAD = """\
# Settings

Made by `make docs` from `src/ternmq/settings/`: change it there.

The broker looks for a setting in these places, in this order, and uses the first value that it
finds: a flag of the command; the environment (`TERNMQ_` and the key in capitals, with `_` for a
dot); the file (`--config FILE`, `TERNMQ_CONFIG`, or `ternmq.toml` in the current folder); the
default. A key that is not listed here is an error. Durations are written `250ms`, `90s`, `10m`,
`1h30m`, `7d`, and sizes `512B`, `4KiB`, `64MiB`, `1GiB`. Both need a unit. Values that are `true`
or `false` can also be written as text, in the file and in the environment: {truths}.

```toml
data = "/var/lib/ternmq"
listen = "0.0.0.0:7117"
tls_cert = "/etc/ternmq/cert.pem"
tls_key = "/etc/ternmq/key.pem"
heartbeat = "15s"

[limits]
session_grace = "30s"
```

Clients and commands read `TERNMQ_URL`, `TERNMQ_APP`, `TERNMQ_TOKEN`, `TERNMQ_CONTEXT` and
`TERNMQ_TABLES`. The broker ignores these variables.
"""
_LIMITS_HEAD = """\
These settings limit what the broker remembers. They are in the table `[limits]` of the file. When a
limit is reached, the broker refuses requests that would exceed it; for most limits, the error is
`Busy` ([exceptions](../operate/metrics.md#the-most-important-metrics)). The
[metrics](../operate/metrics.md) show how near the broker is to each limit.
"""


def _truths() -> str:
    words = {
        truth: [word for word, one in TRUTHS.items() if one is truth] for truth in (True, False)
    }
    return " or ".join(", ".join(f"`{word}`" for word in one) for one in words.values())


def reference() -> str:
    """Return the page."""
    parts = [_HEAD.replace("{truths}", _truths())]
    rows: list[str] = []
    for field in FIELDS.values():
        section = SECTIONS.get(field.name)
        if section is not None:
            parts += rows
            rows = [f"\n## {section}\n", _COLUMNS]
        rows.append(_row(field))
    parts += rows
    parts += ["\n## Limits\n", _LIMITS_HEAD, _COLUMNS]
    parts += [_row(field) for field in LIMIT_FIELDS.values()]
    return "\n".join(parts) + "\n"


_COLUMNS = "| key | form | default | what it is |\n|---|---|---|---|"


def _row(field: Field) -> str:
    default = f"`{field.write(field.default)}`" if field.default != "" else ""
    for mode in (Mode.DEV, Mode.TESTING):
        other = DEFAULTS[mode].get(field.name, field.default)
        if other != field.default:
            default += f", {mode.value} `{field.write(other)}`"
    form = field.unit
    if field.bounds:
        form += f", {field.bounds}"
    return f"| `{field.key}` | {form} | {default} | {field.about.text} |"
