"""Followers of a real primary: what they get, when answers leave, who is taken out."""

from __future__ import annotations

import asyncio
import ssl
import subprocess
from pathlib import Path

import msgspec
import pytest
from msgspec import UNSET

from ternmq.cluster.coordination.record import Member
from ternmq.cluster.replication.settings import CopySettings
from ternmq.journal.disk.real import RealDisk
from ternmq.journal.log.scan import scan
from ternmq.journal.log.segment import segment_name
from ternmq.model.types import NO_POSITION
from ternmq.record.fact.header import Kind
from ternmq.server.scrub import scrubber
from tests.asynchronous import until
from tests.integration.replication.copying import JOURNAL, Copier, pair, stream_of

B = Member("b", 9)
SECOND = 1_000_000


async def turns(count: int = 50) -> None:
    """Let the loop turn: what would happen by itself has happened then."""
    for _ in range(count):
        await asyncio.sleep(0.001)


def copied(copier: Copier) -> bytes:
    return stream_of(copier.disk, copier.segment_bytes, copier.first)


# ------------------------------------------------------------------------------ the bytes


async def test_a_copy_is_the_journal(tmp_path: Path) -> None:
    async with pair(tmp_path) as one:
        copier, sender = one.copier(), one.sender()
        await copier.follow()
        await sender.connect(one.server.port)
        await sender.sent(50)
        await until(lambda: copier.end == one.journal.written, "the end of the journal")
        assert copied(copier) == one.stream()
        assert copier.followed is not None
        assert (copier.followed.matched, copier.followed.start) == (NO_POSITION, 0)
        await until(lambda: copier.marks is not None and copier.marks.end == copier.end)
        await until(lambda: one.primary.figures()[0].behind_bytes == 0, "its acknowledgement")
        (found,) = one.primary.figures()
        assert (found.broker, found.member) == ("b", False)
        await copier.close()
        await until(lambda: not one.primary.figures())


@pytest.mark.parametrize("tail_bytes", [1, 1 << 20, 32 << 20])
async def test_catching_up_from_segments_while_sends_run(tmp_path: Path, tail_bytes: int) -> None:
    settings = CopySettings(tail_bytes=tail_bytes, window_bytes=2 << 20)
    async with pair(tmp_path, settings=settings) as one:
        copier, sender = one.copier(), one.sender()
        await sender.connect(one.server.port)
        for _ in range(6):
            await sender.sent(5, 500_000)
        assert one.journal.written > 3 * one.journal.segment_size
        await copier.follow()
        while copier.end < one.journal.written:
            await sender.sent(3, 1000)
        await until(lambda: copier.end == one.journal.written, "the end of the journal")
        await sender.sent(20)
        await until(lambda: copier.end == one.journal.written, "the end of the journal")
        assert copied(copier) == one.stream()


@pytest.mark.parametrize("tail_bytes", [1, 32 << 20])
async def test_the_stream_of_a_backup_is_compressed(tmp_path: Path, tail_bytes: int) -> None:
    """From segments and from memory; that of a member beside it is not."""
    settings = CopySettings(tail_bytes=tail_bytes, window_bytes=2 << 20)
    async with pair(tmp_path, settings=settings) as one:
        backup, sender = one.copier(broker="c", incarnation=3), one.sender()
        await sender.connect(one.server.port)
        sender.shrinks = True
        await sender.sent(8, 400_000)
        member = one.copier()
        await member.follow(compress=("zstd",))
        await backup.follow(kind="backup", compress=("lz5", "zstd"))
        assert backup.followed is not None
        assert member.followed is not None
        assert (backup.followed.compress, member.followed.compress) == ("zstd", UNSET)
        await sender.sent(30, 5000)
        await until(lambda: backup.end == one.journal.written, "the end of the journal")
        await until(lambda: member.end == one.journal.written, "the end of the journal")
        saved = backup.saved_bytes
        assert saved > 3_000_000
        sender.shrinks = False
        await sender.sent(40, 20_000)
        await until(lambda: backup.end == one.journal.written, "the end of the journal")
        assert backup.saved_bytes - saved < 20_000, "what does not shrink is sent as it is"
        assert copied(backup) == copied(member) == one.stream()
        assert member.saved_bytes == 0


async def test_a_compressed_stream_has_the_same_window(tmp_path: Path) -> None:
    """Bytes count as they are inflated, so the copier needs no more memory."""
    async with pair(tmp_path, settings=CopySettings(window_bytes=1 << 20)) as one:
        copier, sender = one.copier(), one.sender()
        copier.acks, sender.shrinks = False, True
        await sender.connect(one.server.port)
        await sender.sent(12, 300_000)
        await copier.follow(kind="backup", compress=("zstd",))
        await until(lambda: copier.unacknowledged > 600_000)
        await turns()
        assert copier.end < one.journal.written
        copier.acks = True
        copier.acknowledge()
        await until(lambda: copier.end == one.journal.written, "the end of the journal")
        assert copier.most_unacknowledged <= 1 << 20
        assert copied(copier) == one.stream()


async def test_a_backup_that_goes_away_while_a_piece_is_compressed(tmp_path: Path) -> None:
    async with pair(tmp_path) as one:
        copier, sender = one.copier(), one.sender()
        sender.shrinks = True
        await sender.connect(one.server.port)
        await copier.follow(kind="backup", compress=("zstd",))
        for _ in range(5):
            await sender.sent(3, 300_000)
            await copier.again(kind="backup", compress=("zstd",))
        await until(lambda: copier.end == one.journal.written, "the end of the journal")
        assert copied(copier) == one.stream()


async def test_a_slow_follower_has_a_window(tmp_path: Path) -> None:
    settings = CopySettings(window_bytes=1 << 20)
    async with pair(tmp_path, settings=settings) as one:
        copier, sender = one.copier(), one.sender()
        copier.acks = False
        await sender.connect(one.server.port)
        await sender.sent(12, 300_000)
        await copier.follow()
        await until(lambda: copier.unacknowledged > 600_000)
        await turns()
        end = copier.end
        assert end < one.journal.written
        copies = one.core.broker.ledger.copies
        await until(lambda: copies.unsent == (end, "b"), "the journal is kept from there on")
        copier.acknowledge()
        await until(lambda: copier.end > end)
        copier.acks = True
        copier.acknowledge()
        await until(lambda: copier.end == one.journal.written, "the end of the journal")
        assert copier.most_unacknowledged <= 1 << 20
        assert copied(copier) == one.stream()
        await until(lambda: copies.unsent == (one.journal.written, "b"), "it has been sent all")
        await copier.close()
        await until(lambda: copies.unsent is None, "nothing is kept for one that is gone")


@pytest.mark.parametrize("tail_bytes", [1, 32 << 20])
async def test_a_follower_goes_on_where_its_copy_ends(tmp_path: Path, tail_bytes: int) -> None:
    async with pair(tmp_path, settings=CopySettings(tail_bytes=tail_bytes)) as one:
        copier, sender = one.copier(), one.sender()
        await copier.follow(kind="backup")  # sends go on while it is away
        await sender.connect(one.server.port)
        await sender.sent(10)
        await until(lambda: copier.end == one.journal.written)
        await copier.close()
        end = copier.end
        await sender.sent(10)
        await copier.again(kind="backup")
        assert copier.followed is not None
        assert copier.followed.start == end
        assert copier.followed.matched < end
        await until(lambda: copier.end == one.journal.written)
        assert copied(copier) == one.stream()


@pytest.mark.parametrize("tail_bytes", [1, 32 << 20])
async def test_a_checkpoint_that_does_not_match(tmp_path: Path, tail_bytes: int) -> None:
    async with pair(tmp_path, settings=CopySettings(tail_bytes=tail_bytes)) as one:
        copier, sender = one.copier(), one.sender()
        await copier.follow()
        await sender.connect(one.server.port)
        await sender.sent(10)
        await until(lambda: copier.end == one.journal.written)
        last = copier.checkpoint()
        strange = type(last)(last.position, last.epoch, last.crc ^ 1)
        earlier = type(last)(0, 1, int.from_bytes(copied(copier)[:4], "little"))
        await copier.again(checkpoints=[strange])
        assert copier.followed is not None
        assert (copier.followed.matched, copier.followed.start) == (NO_POSITION, 0)
        await until(lambda: copier.end == one.journal.written)
        await copier.again(checkpoints=[strange, earlier, last])
        assert copier.followed.matched == 0
        await until(lambda: copier.end == one.journal.written)
        assert copier.followed.start > 0


@pytest.fixture
def certificate(tmp_path: Path) -> tuple[str, str]:
    """Make a certificate and its key; return their files."""
    key, cert = str(tmp_path / "key.pem"), str(tmp_path / "cert.pem")
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1",
         "-nodes", "-days", "2", "-subj", "/CN=broker", "-keyout", key, "-out", cert],
        check=True, capture_output=True,
    )  # fmt: skip
    return cert, key


async def test_over_tls(tmp_path: Path, certificate: tuple[str, str]) -> None:
    cert, key = certificate
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    async with pair(tmp_path / "data", tls_cert=cert, tls_key=key) as one:
        copier = one.copier()
        copier.tls = context
        await copier.follow()
        await until(lambda: copier.end == one.journal.written, "the end of the journal")
        one.core.broker.journal.mark(one.core.now_us(), again=True)
        one.core.touch()
        await until(lambda: copier.end == one.journal.end == one.journal.written)
        assert copied(copier) == one.stream()


# ------------------------------------------------------------------------------ answers


async def test_a_send_is_answered_after_sync_and_acknowledgement(tmp_path: Path) -> None:
    async with pair(tmp_path, B) as one:
        copier, sender = one.copier(), one.sender()
        copier.acks = False
        await copier.follow()
        await sender.connect(one.server.port, wait=False)
        await until(lambda: one.journal.durable == one.journal.end and copier.end > 0)
        await turns()
        assert one.journal.committed == 0
        assert sender.bytes == 0, "not even HELLO was answered"
        copier.acks = True
        await until(lambda: sender.bytes, "WELCOME")
        await sender.sent(5)
        assert one.journal.committed > one.primary.reign.record.epoch
        copier.acks = False
        await until(lambda: copier.end == one.journal.written == one.journal.durable)
        await turns()
        id_ = sender.send()
        await until(lambda: copier.end == one.journal.durable == one.journal.end)
        await turns()
        assert id_ not in sender.answered
        copier.acknowledge()
        await until(lambda: id_ in sender.answered)


async def test_a_silent_member_is_taken_out_and_sends_go_on(tmp_path: Path) -> None:
    settings = CopySettings(lease_us=400_000, silent_us=250_000)
    async with pair(tmp_path, B, settings=settings) as one:
        copier, sender = one.copier(), one.sender()
        await copier.follow()
        await sender.connect(one.server.port)
        await sender.sent(5)
        copier.acks = False
        await until(lambda: copier.end == one.journal.durable)
        await turns()
        id_ = sender.send()
        await until(lambda: one.changes, "a change of the members")
        await turns()
        assert id_ not in sender.answered, "it counts until the swap is known"
        assert "without b" in one.changes[0].why
        await one.learned()
        await until(lambda: id_ in sender.answered)
        copier.acks = True
        copier.acknowledge()
        await until(lambda: one.changes, "it comes back")
        assert "with b" in one.changes[0].why
        await one.learned()
        assert one.primary.reign.takes_strict
        await sender.sent(5)
        assert one.primary.figures()[0].member


async def test_nothing_leaves_without_the_lease(tmp_path: Path) -> None:
    async with pair(tmp_path, B) as one:
        copier, sender = one.copier(), one.sender()
        await copier.follow()
        await sender.connect(one.server.port)
        await sender.sent(5)
        copier.acks = False
        await turns()
        had = sender.bytes
        sender.ping()
        await until(lambda: sender.bytes > had)
        one.ahead_us += 10 * SECOND  # as after a stop of the process: the first thing it does
        had = sender.bytes
        sender.ping()
        sender.send()
        late = one.sender()
        await late.connect(one.server.port, wait=False)
        late.say(b"nonsense that is answered by a farewell")
        await until(lambda: late.ended or not late.bytes)
        await turns()
        assert sender.bytes == had
        assert late.bytes == 0
        copier.acks = True
        await until(lambda: sender.bytes > had, "the answers leave with the next acknowledgement")
        await until(lambda: len(sender.answered) == 6)
        for each in (sender, late):
            await each.close()
        await copier.close()


async def test_a_backup_delays_nobody(tmp_path: Path) -> None:
    async with pair(tmp_path) as one:
        copier, sender = one.copier(), one.sender()
        copier.acks = False
        await copier.follow(kind="backup")
        await sender.connect(one.server.port)
        await sender.sent(20)
        await until(lambda: copier.end == one.journal.written)
        copier.acks = True
        copier.acknowledge()
        await turns(300)
        assert not one.changes


# ------------------------------------------------------------------------------ ends


async def test_a_follower_that_acknowledges_nothing_for_long_is_cut_off(tmp_path: Path) -> None:
    async with pair(tmp_path) as one:
        copier = one.copier()
        copier.acks = False
        await copier.follow()
        await until(lambda: copier.end == one.journal.written)
        for _ in range(30):  # by steps: after a jump it counts as a stop of this process
            one.ahead_us += SECOND // 2
            one.primary.tick()
        await until(lambda: copier.ended)


async def test_nobody_is_cut_off_for_what_a_stopped_process_did_not_hear(tmp_path: Path) -> None:
    async with pair(tmp_path) as one:
        copier = one.copier()
        await copier.follow()
        await until(lambda: copier.end == one.journal.written)
        one.ahead_us += 3600 * SECOND
        one.primary.tick()
        await turns(200)
        assert not copier.ended
        assert len(one.primary.figures()) == 1


async def test_a_process_that_comes_again_has_one_connection(tmp_path: Path) -> None:
    async with pair(tmp_path, B) as one:
        copier, again = one.copier(), one.copier()
        await copier.follow()
        await until(lambda: copier.end == one.journal.written)
        await again.follow()
        await until(lambda: copier.ended, "the earlier connection is closed")
        await until(lambda: len(one.primary.figures()) == 1)
        sender = one.sender()
        await sender.connect(one.server.port)
        await sender.sent(3)


async def test_after_close_nothing_leaves(tmp_path: Path) -> None:
    async with pair(tmp_path) as one:
        copier, sender = one.copier(), one.sender()
        await copier.follow()
        await sender.connect(one.server.port)
        await sender.sent(3)
        one.primary.close()
        await until(lambda: copier.ended)
        had = sender.bytes
        sender.ping()
        sender.send()
        await turns()
        assert sender.bytes == had
        late = one.copier()
        await late.follow()
        assert late.refusal is not None
        assert late.refusal.retriable


async def test_a_primary_that_resigns(tmp_path: Path) -> None:
    async with pair(tmp_path, B) as one:
        copier, sender = one.copier(), one.sender()
        await copier.follow()
        await sender.connect(one.server.port)
        await sender.sent(5)
        one.primary.resign("the disk\ndoes not respond", "b")
        had = sender.bytes
        sender.send()
        sender.ping()
        await until(lambda: copier.ended, "the end of the stream")
        assert copier.resigned is not None
        assert (copier.resigned.to, copier.resigned.why) == ("b", "the disk does not respond")
        await turns()
        assert sender.bytes == had
        assert not one.deposed, "it knows"
        other = one.copier()
        await other.follow()
        assert "NotPrimary" in repr(type(other.refusal))
        for each in (copier, other):
            await each.close()


async def test_a_follower_that_was_told_of_a_later_reign(tmp_path: Path) -> None:
    async with pair(tmp_path) as one:
        copier, sender = one.copier(), one.sender()
        await sender.connect(one.server.port)
        await sender.sent(5)
        await copier.follow(told=one.journal.epoch + 1)
        assert "NotPrimary" in repr(type(copier.refusal))
        assert len(one.deposed) == 1
        had = sender.bytes
        sender.ping()
        await turns()
        assert sender.bytes == had


async def test_another_primary_is_recorded(tmp_path: Path) -> None:
    async with pair(tmp_path, B) as one:
        record = msgspec.structs.replace(
            one.record, version=2, epoch=one.record.epoch + 1, primary="b"
        )
        one.primary.learned(record)
        one.primary.learned(record)
        assert len(one.deposed) == 1
        assert record.journal == JOURNAL


async def test_a_member_that_has_more_ends_the_reign(tmp_path: Path) -> None:
    async with pair(tmp_path, B) as one:
        epoch = one.journal.epoch
        stranger = one.copier(broker="c")
        await stranger.follow(lacking=epoch)
        assert stranger.followed is not None, "its word does not count: it cannot take over"
        copier = one.copier()
        await copier.follow(lacking=epoch - 1)
        assert copier.followed is not None, "that was another reign"
        assert not one.deposed
        await copier.close()
        copier = one.copier()
        await copier.follow(lacking=epoch)
        assert "NotPrimary" in repr(type(copier.refusal))
        assert one.deposed == [one.primary.outdated]
        await copier.close()


async def test_what_a_follower_does_not_take_is_looked_at(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The primary reads it from a segment, where it is damaged; only the follower notices that."""
    monkeypatch.setattr(scrubber, "_ALONE_S", 0.0)
    async with pair(tmp_path, settings=CopySettings(tail_bytes=1)) as one:
        sender = one.sender()
        await sender.connect(one.server.port)
        await sender.sent(200)
        record = [
            found
            for found in scan(RealDisk(tmp_path, read_only=True), 0)
            if found.kind == Kind.MESSAGES
        ][-2]
        with (tmp_path / segment_name(0)).open("r+b") as file:
            file.seek(record.end - 20)
            file.write(b"\xa5" * 8)
        copier = one.copier()
        await copier.follow()
        await until(lambda: copier.ended, "it cannot take it")
        scrub = one.server.caretaker.scrubber
        assert not scrub.figures.damaged
        await copier.close()
        await until(lambda: scrub.figures.damaged == 1, "the primary finds it")
