"""pytest plugin: which tests may run beside each other with ``-n`` (`make test`).

pytest-xdist starts worker processes and gives each of them one group of tests after another. This
plugin decides what a group is:

* The tests of a file are a group, so that a fixture of a module is made once.
* ``GROUPS`` names tests that want much of the machine: none of them runs beside another of its
  group. Tests of other groups do run beside them.

Groups start in the order of ``FIRST``: the longest first, so that no worker is left with a long
group at the end.
A test in a worker may take ``PATIENCE`` times as long as alone before it counts as one that hangs.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Final

import pytest

from tests.workers import is_worker

if TYPE_CHECKING:
    from xdist.scheduler import LoadScopeScheduling

GROUPS: Final = {
    # A Spark takes 2 GB of memory, and all that the machine has while it starts.
    "spark": ("tests/spark/",),
    # Loop devices, limits of memory, brokers under full load, measurements.
    "machine": ("tests/fault/", "tests/unit/test_bench"),
}
"""Group -> how the ids of its tests begin."""

FIRST: Final = (
    *GROUPS["spark"],
    *GROUPS["machine"],
    "tests/demo/",
    "tests/examples/",
    "tests/black_box/",
    "tests/integration/",
    "tests/cli/",
)
"""How the ids of the tests begin that start first; the others follow as they were collected."""

PATIENCE: Final = 2
"""How many times longer the limits of pytest-timeout are in a worker."""


def group(test: str) -> str:
    """Return the name of the group that a test belongs to."""
    for name, beginnings in GROUPS.items():
        if test.startswith(beginnings):
            return name
    return test.partition("::")[0]


def rank(test: str) -> int:
    """Return where a test stands in the order of ``FIRST``."""
    for number, beginning in enumerate(FIRST):
        if test.startswith(beginning):
            return number
    return len(FIRST)


def time_limit(item: pytest.Item) -> float:
    """Return after how many seconds a test would count as one that hangs; 0: never."""
    mark = item.get_closest_marker("timeout")
    if mark is not None:
        return float(mark.args[0])
    return float(item.config.getoption("timeout") or item.config.getini("timeout") or 0)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """Return how many processes ``-n auto`` starts.

    One more than there are cores: tests that kill brokers and cut the power mostly wait.
    """
    return len(os.sched_getaffinity(0)) + 1


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> LoadScopeScheduling | None:
    """Distribute groups, unless another way is asked for by ``--dist``."""
    if config.getoption("dist") != "load":
        return None
    from xdist.scheduler import LoadScopeScheduling

    class Groups(LoadScopeScheduling):  # type: ignore[misc]
        def _split_scope(self, nodeid: str) -> str:
            return group(nodeid)

    # Not the groups with the most tests first.
    config.option.loadscopereorder = False
    return Groups(config, log)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Bring the groups into their order, and give tests more time; a run alone stays as it is."""
    if not is_worker(config):
        return
    items.sort(key=lambda item: rank(item.nodeid))
    for item in items:
        limit = time_limit(item)
        if limit:
            item.add_marker(pytest.mark.timeout(PATIENCE * limit), append=False)
