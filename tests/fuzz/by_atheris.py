"""The same targets under atheris (libFuzzer), where it is installed.

``python -m tests.fuzz.by_atheris frames -max_total_time=60``: all that libFuzzer understands may
follow. An input begins with a byte that chooses the part.
"""

from __future__ import annotations

import sys

import atheris  # type: ignore[import-not-found, import-untyped, unused-ignore]

with atheris.instrument_imports(include=["ternmq.wire", "ternmq.record", "ternmq.journal"]):
    from tests.fuzz import expressions, frames, records
    from tests.fuzz.engine import Input, judge

TARGETS = {target.name: target for target in (frames.TARGET, records.TARGET, expressions.TARGET)}


def main() -> None:
    """Fuzz until libFuzzer is told to end."""
    target = TARGETS[sys.argv[1]]
    parts = sorted(target.parts)

    def one(data: bytes) -> None:
        if data:
            judge(target, Input(parts[data[0] % len(parts)], data[1:]))

    atheris.Setup([sys.argv[0], "-max_len=65536", *sys.argv[2:]], one)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
