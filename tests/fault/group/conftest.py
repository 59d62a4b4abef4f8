"""Which scenarios belong to `make test`: a short form of each kind; `make group-faults` has all."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import pytest

from tests.fault.group.tools import LONG

SHORT: Final = (
    "test_kill.py::test_primary_and_replica_are_killed_in_turn",
    "test_kill.py::test_both_are_killed_at_once[replica]",
    "test_stopped.py::test_the_primary_is_stopped_and_wakes_up",
    "test_links.py::test_the_primary_sees_nobody_but_its_clients",
    "test_coordinator.py::test_the_primary_is_killed_while_the_coordinator_is_away[sqlite]",
    "test_power_cut.py::test_a_replica_that_lost_its_tail_is_not_elected[ext4]",
    "test_behind.py::test_a_wiped_replica_is_brought_up",
    "test_wrong.py::test_an_old_copy_of_the_folder_in_the_place_of_the_primarys",
    "test_disks.py::test_a_sync_that_fails_once[primary]",
    "test_damaged.py::test_a_damaged_folder_is_mended_from_the_other[member-replica]",
    "test_mended.py::test_a_consumer_gets_what_was_damaged_at_the_primary[both]",
    "test_mended.py::test_the_scrub_mends_both_copies",
    "test_restore.py::test_a_backup_is_restored",
    "test_zookeeper.py::test_sessions_end_and_the_leader_of_the_ensemble_dies",
    "test_clocks.py::test_wall_clocks_an_hour_apart_that_jump",
    "test_ordered.py::test_consumers_killed_and_paused_over_failovers",
    "test_site.py::test_the_main_site_is_lost_and_comes_back",
    "test_nemesis.py::test_random_faults",
    "test_loss.py::test_a_primary_that_was_stopped_meanwhile_gives_up_what_it_had_answered",
)
"""Ends of the ids of these tests."""


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave the others out, unless the long forms are run or somebody names the files."""
    if LONG or _named(config.args):
        return
    here = [one for one in items if "tests/fault/group/" in one.nodeid]
    out = [one for one in here if not one.nodeid.endswith(SHORT)]
    if out:
        config.hook.pytest_deselected(items=out)
        items[:] = [one for one in items if one not in out]


def _named(words: Sequence[str]) -> bool:
    return any("tests/fault/group/" in word for word in words)
