"""Settings of the Spark sessions of the tests."""

from __future__ import annotations

from typing import Final

SETTINGS: Final = {
    "spark.driver.memory": "1g",
    "spark.driver.host": "127.0.0.1",
    # These sessions live for minutes: to compile what runs often, and to collect garbage with all
    # cores, takes more of the processor than it saves. Four tests took 48 s of it instead of 75 s.
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
}
"""Settings of each session."""
