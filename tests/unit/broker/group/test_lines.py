"""Lines of ordering keys against dictionaries."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from ternmq.broker.group.lines import Lines

HASHES = (11, 22, 33)


class LinesMachine(RuleBasedStateMachine):
    """Rows stand, are leased in order, given back, leave; heads that wait are offered when due."""

    def __init__(self) -> None:
        super().__init__()
        self.lines = Lines()
        self.hash_of: dict[int, int] = {}
        self.leased: set[int] = set()
        self.waiting: set[int] = set()
        """Rows whose due time has not come: a pull passes them over."""
        self.next = 0

    def line(self, hash_: int) -> list[int]:
        return sorted(at for at, one in self.hash_of.items() if one == hash_)

    @rule(hash_=st.sampled_from(HASHES), gap=st.integers(1, 3))
    def park(self, hash_: int, gap: int) -> None:
        """A row of a key that is not idle is put behind it; a row of an idle key is leased."""
        offset = self.next
        self.next += gap
        busy = bool(self.line(hash_))
        self.lines.stand(offset, hash_)
        self.lines.stand(offset, hash_)  # no effect
        self.hash_of[offset] = hash_
        if not busy:
            self.lines.lease(offset)
            self.leased.add(offset)

    @precondition(lambda self: self.leased)
    @rule(data=st.data(), leaves=st.booleans(), waits=st.booleans())
    def settle(self, data: st.DataObject, leaves: bool, waits: bool) -> None:
        offset = data.draw(st.sampled_from(sorted(self.leased)))
        self.leased.discard(offset)
        self.lines.give_back(offset)
        if leaves:
            self.lines.leave(offset)
            del self.hash_of[offset]
        elif waits:
            self.waiting.add(offset)
        else:
            self.lines.offer(offset)

    @precondition(lambda self: self.waiting)
    @rule(data=st.data())
    def due(self, data: st.DataObject) -> None:
        offset = data.draw(st.sampled_from(sorted(self.waiting)))
        self.waiting.discard(offset)
        self.lines.offer(offset)

    @precondition(lambda self: self.hash_of)
    @rule(data=st.data())
    def give_up(self, data: st.DataObject) -> None:
        """An operator gives up a row that nobody holds."""
        free = sorted(set(self.hash_of) - self.leased)
        if free:
            offset = data.draw(st.sampled_from(free))
            self.waiting.discard(offset)
            self.lines.leave(offset)
            del self.hash_of[offset]
            self.lines.leave(offset)  # no effect

    @rule()
    def start_anew(self) -> None:
        self.lines.offer_all()

    @rule(rows=st.integers(1, 3))
    def pull(self, rows: int) -> None:
        """Take every free line once; whoever pops an entry leases its rows, or puts it back."""
        expected = {
            self.line(hash_)[0]
            for hash_ in set(self.hash_of.values())
            if not self.leased.intersection(self.line(hash_))
            and self.line(hash_)[0] not in self.waiting
        }
        found: set[int] = set()
        while (free := self.lines.pop_free()) is not None:
            head, hash_, line = free
            assert line.offsets == self.line(hash_)
            assert line.offsets[0] == head
            assert not line.leased
            if head in self.waiting:
                continue
            found.add(head)
            for offset in line.offsets[:rows]:
                if offset in self.waiting:
                    break
                self.lines.lease(offset)
                self.leased.add(offset)
        assert found == expected

    @invariant()
    def the_lines_are_the_rows_by_hash(self) -> None:
        assert self.lines.hash_of == self.hash_of
        assert len(self.lines) == len(self.hash_of)
        assert set(self.lines.by_hash) == set(self.hash_of.values())
        for hash_, line in self.lines.by_hash.items():
            assert line.offsets == self.line(hash_)
            assert line.leased == len(self.leased.intersection(line.offsets))


TestLines = LinesMachine.TestCase
TestLines.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)


def test_free_lines_come_by_their_heads() -> None:
    lines = Lines()
    for offset, hash_ in ((7, 1), (3, 2), (9, 2), (5, 3)):
        lines.stand(offset, hash_)
    assert lines.pop_free() is None
    lines.offer_all()
    heads = []
    while (free := lines.pop_free()) is not None:
        heads.append(free[:2])
    assert heads == [(3, 2), (5, 3), (7, 1)]
    lines.put_free(5, 3)
    lines.put_free(4, 3)  # stale: another row is the head
    assert lines.pop_free() == (5, 3, lines.by_hash[3])
    assert lines.pop_free() is None
