"""``ternmq journal`` on folders that a real broker wrote."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

import ternmq.sync
from tests.black_box.process import BrokerProcess, wait_until
from tests.cli.conftest import CommandLine, Processes


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("journal")
    with (
        BrokerProcess("dev", folder, segment="4MiB") as broker,
        ternmq.sync.connect(broker.url) as client,
    ):
        for n in range(20):
            client.send("orders", f"message {n}")
        client.pull("orders", group="billing", max_messages=5).ack()
    return folder / "data"


@pytest.fixture
def sound(written: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(written, tmp_path / "copy"))


@pytest.fixture
def damaged(cli: CommandLine, sound: Path) -> Path:
    """The tenth message is damaged."""
    records = cli("journal", "dump", sound, "--kind", "messages", "--json").lines
    (file,) = [one for one in (sound / "journal").glob("*.seg") if int(one.stem) == 0]
    with file.open("r+b") as out:
        out.seek(records[9]["position"] + 100)
        out.write(b"\xff" * 8)
    return sound


def test_a_dump(cli: CommandLine, sound: Path) -> None:
    records = cli("journal", "dump", sound, "--json")
    kinds = [one["kind"] for one in records.lines]
    assert kinds[:2] == ["SEGMENT", "EPOCH"]
    assert kinds.count("MESSAGES") == 20
    assert "SETTLED" in kinds
    assert "valid records end at" in records.err
    shown = cli("journal", "dump", sound, "--kind", "messages", "-n", 3).out.splitlines()
    assert len(shown) == 3
    assert all("MESSAGES" in line and "message 1" not in line for line in shown)
    start = records.lines[5]["position"]
    assert cli("journal", "dump", sound, "--from", start, "-n", 1,
               "--json").lines == records.lines[5:6]  # fmt: skip
    within = cli("journal", "dump", sound, "--from", start + 1, code=2).err
    around = f"{start} and {records.lines[6]['position']}"
    assert f"no record begins at {start + 1}: the records around it begin at {around}" in within
    within = cli("journal", "dump", sound, "--from", 5, code=2).err
    around = f"0 and {records.lines[1]['position']}"
    assert f"no record begins at 5: the records around it begin at {around}" in within
    beyond = cli("journal", "dump", sound, "--from", 99_999_999_999, code=2).err
    assert "no record begins at 99999999999: the journal ends before " in beyond
    unknown = cli("journal", "dump", sound, "--kind", "nix", code=2).err
    assert "is not a kind of record; kinds: SEGMENT, " in unknown


def test_what_is_no_journal(cli: CommandLine, tmp_path: Path, sound: Path) -> None:
    (tmp_path / "empty").mkdir()
    for command in ("dump", "verify", "repair"):
        assert "no journal" in cli("journal", command, tmp_path / "empty", code=4).err
    assert "did you mean SETTLED?" in cli("journal", "dump", sound, "--kind", "setled",
                                          code=2).err  # fmt: skip
    (segment,) = [one for one in (sound / "journal").glob("*.seg") if int(one.stem) == 0]
    segment.write_bytes(b"\xff" * 4096)
    for command in ("verify", "repair", "dump"):
        cli("journal", command, sound, code=8)


def test_a_sound_journal(cli: CommandLine, sound: Path) -> None:
    assert "sound" in cli("journal", "verify", sound).out
    told = cli("journal", "verify", sound, "--json").json
    assert told["sound"] is True
    assert told["damage"] == []
    assert "nothing to repair" in cli("journal", "repair", sound, "--cut").err


def test_damage_is_found_and_shown_and_cut_only_by_consent(cli: CommandLine, damaged: Path) -> None:
    assert "damaged in 1 place\n" in cli("journal", "verify", damaged, code=8).out
    found = cli("journal", "verify", damaged, "--json", code=8).json
    assert found["sound"] is False
    (place,) = found["damage"]
    assert place["file"].startswith("journal/00000000000000000000.seg+")
    assert "journal repair" in cli("journal", "verify", damaged, code=8).err

    before = {one: one.read_bytes() for one in damaged.rglob("*") if one.is_file()}
    preview = cli("journal", "repair", damaged, "--dry-run", "--json").json
    lost = [one for one in preview["lost"] if one["kind"] == "MESSAGES"]
    assert [one["first_offset"] for one in lost] == list(range(9, 20))
    assert lost[0]["whole"] is False
    assert {(one["topic"], one["topic_number"], one["queue"], one["count"]) for one in lost} == {
        ("orders", 1, 0, 1)
    }
    refused = cli("journal", "repair", damaged, code=1)
    assert "would lose" in refused.err
    assert "11 messages" in refused.err
    shown = next(line for line in refused.err.splitlines() + refused.out.splitlines()
                 if line.endswith("damaged"))  # fmt: skip
    assert shown.split() == [str(place["start"]), "orders", "0", "9-9", "damaged"]
    assert refused.err.splitlines()[-1] == "ternmq: nothing was changed: add --cut to do it"
    asked = cli("journal", "repair", damaged, "--json", code=1)
    assert (asked.out, asked.err) == (
        "",
        "ternmq: nothing was cut: --json does not prompt: add --cut or --dry-run\n",
    )
    after = {one: one.read_bytes() for one in damaged.rglob("*") if one.is_file()}
    assert {one: data for one, data in after.items() if one in before} == before

    done = cli("journal", "repair", damaged, "--cut", "--json").json
    assert done["cut"] == place["start"]
    assert [one for one in done["lost"] if one["kind"] == "MESSAGES"] == lost
    assert all((damaged / one).is_file() for one in done["saved"])
    cli("journal", "verify", damaged)
    with BrokerProcess("dev", damaged.parent / "after", segment="4MiB") as broker:
        assert broker.stop() == 0
        shutil.rmtree(broker.data)
        shutil.copytree(damaged, broker.data)
        broker.start()
        out = cli("tail", "orders", "-n", 100, "--raw", "--url", broker.url).out
    assert out == "".join(f"message {n}\n" for n in range(9))


def test_the_last_message_damaged_has_unknown_offsets(cli: CommandLine, sound: Path) -> None:
    last = cli("journal", "dump", sound, "--kind", "messages", "--json").lines[-1]
    with (sound / "journal" / f"{0:020d}.seg").open("r+b") as out:
        out.seek(last["position"] + 60)
        out.write(b"\xde\xad\xbe\xef")
    preview = cli("journal", "repair", sound, "--dry-run", "--json").json
    (lost,) = [one for one in preview["lost"] if one["kind"] == "MESSAGES"]
    assert [lost[name] for name in ("topic", "topic_number", "queue", "first_offset", "count")] == (
        [None] * 5
    )
    told = cli("journal", "repair", sound, "--dry-run")
    text = told.out + told.err
    assert "with at least 0 messages, and those of 1 damaged record:" in text
    assert f"{last['position']}  unknown  unknown  unknown  damaged".split() in [
        line.split() for line in text.splitlines()
    ]


def test_a_donor_mends_everything(cli: CommandLine, written: Path, damaged: Path) -> None:
    done = cli("journal", "repair", damaged, "--donor", written, "--json").json
    assert (done["done"], done["cut"], done["lost"]) == (True, None, [])
    assert len(done["mended"]) == 1
    cli("journal", "verify", damaged)
    kinds = [one["kind"] for one in cli("journal", "dump", damaged, "--json").lines]
    assert kinds.count("MESSAGES") == 20


def test_a_folder_that_a_broker_uses(
    cli: CommandLine, broker: BrokerProcess, processes: Processes
) -> None:
    cli("journal", "dump", broker.data, "-n", 1)
    assert "nothing to repair" in cli("journal", "repair", broker.data).err


def test_repair_wants_the_broker_stopped(cli: CommandLine, tmp_path: Path, damaged: Path) -> None:
    from ternmq.journal.recovery.repair import open_folder

    disk = open_folder(str(damaged))
    try:
        assert "stop the other broker" in cli("journal", "repair", damaged, "--cut", code=1).err
    finally:
        disk.close()


def test_lines_are_json_each(processes: Processes, sound: Path) -> None:
    out = processes.run("journal", "dump", sound, "--json").out
    assert all(json.loads(line)["crc"] >= 0 for line in out.splitlines())


@pytest.mark.row("C16")
def test_records_and_index_are_printed_and_damage_is_reported(
    processes: Processes, tmp_path: Path
) -> None:
    with (
        BrokerProcess("dev", tmp_path / "sealed", segment="4MiB") as broker,
        ternmq.sync.connect(broker.url) as client,
    ):
        for n in range(9):
            client.send("orders", bytes([n]) * 1_000_000)  # four to a segment
        data = broker.data
        first = data / "index" / f"{0:020d}.idx"
        wait_until(first.exists, "the index of the first segment")  # a thread writes it
        assert broker.stop() == 0
    records = processes.run("journal", "dump", data, "--json").lines
    kept = [one for one in records if one["kind"] == "MESSAGES"]
    assert [one["first_offset"] for one in kept] == list(range(9))

    files = processes.run("journal", "index", data, "--json").lines
    assert all(one["believed"] for one in files)
    covered = [queue for one in files for queue in one["queues"]]
    assert covered[0] == {
        "topic": "orders", "topic_number": 1, "queue": 0, "first_offset": 0, "next_offset": 4
    }  # fmt: skip
    table = processes.run("journal", "index", data).out
    assert table.splitlines()[1].endswith("valid")
    assert "orders" in table.splitlines()[1]

    assert processes.run("journal", "verify", data, "--json").json["sound"] is True
    index = data / files[0]["file"]
    assert index == first
    index.write_bytes(index.read_bytes()[:200])
    segment = data / "journal" / f"{0:020d}.seg"
    with segment.open("r+b") as out:
        out.seek(kept[1]["position"] + 5000)
        out.write(b"damage")
    assert processes.run("journal", "index", data, "--json").lines[0]["believed"] is False
    assert processes.run("journal", "index", data).out.splitlines()[1].endswith("invalid")
    found = processes.run("journal", "verify", data, "--json", code=8).json
    assert [one["start"] for one in found["damage"]] == [kept[1]["position"]]
    said = processes.run("journal", "dump", data, "--json").err
    assert f"end at {kept[1]['position']}: " in said
