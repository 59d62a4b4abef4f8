from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from ternmq.client.admin.admin import Admin
from tests.black_box.process import BrokerProcess
from tests.cli.conftest import CommandLine


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """A broker that wants tokens."""
    folder = tmp_path_factory.mktemp("guarded")
    with BrokerProcess("serve", folder, segment="4MiB") as one:
        yield one


@pytest.fixture
def admin(cli: CommandLine, guarded: BrokerProcess, monkeypatch: pytest.MonkeyPatch) -> CommandLine:
    monkeypatch.setenv("TERNMQ_URL", guarded.url)
    monkeypatch.setenv("TERNMQ_APP", "admin")
    token = (guarded.data / "admin.token").read_text(encoding="ascii").strip()
    monkeypatch.setenv("TERNMQ_TOKEN", token)
    return cli


def test_an_app_from_its_token_to_its_end(admin: CommandLine, topic: str) -> None:
    admin("topic", "create", topic)
    admin("topic", "create", f"{topic}-other")
    made = admin("app", "create", "shop", "--grant", f"produce:{topic}", "--owner", "team a")
    token = made.out.strip()
    assert token.startswith("tmq_")
    assert made.out.count("\n") == 1  # so that a script can take it
    assert "not shown again" in made.err

    as_shop = ("--app", "shop", "--token", token)
    admin("send", topic, "hello", *as_shop)
    assert "grant" in admin("send", f"{topic}-other", "x", *as_shop, code=5).err
    assert admin("app", "show", "shop", "--json").json == {
        "app": "shop",
        "owner": "team a",
        "grants": [{"right": "produce", "topic": topic, "group": "*", "deny": False}],
    }
    assert token not in admin("app", "show", "shop").out

    admin("app", "set", "shop", "--grant", f"produce:{topic}-*", "--deny", f"consume:{topic}:x")
    admin("send", f"{topic}-other", "x", *as_shop)
    (row,) = [row for row in admin("app", "list").rows if row[0] == "shop"]
    # The owner has a blank: only the last column may.
    assert row == ["shop", "team_a", f"produce:{topic}", f"produce:{topic}-*",
                   f"not:consume:{topic}:x"]  # fmt: skip
    admin("app", "set", "shop", "--revoke", f"produce:{topic}-*")
    admin("send", f"{topic}-other", "x", *as_shop, code=5)

    new = admin("app", "set", "shop", "--new-token", "--json").json["token"]
    assert new != token
    admin("send", topic, "hello", *as_shop, code=5)
    admin("send", topic, "hello", "--app", "shop", "--token", new)

    assert "add --yes" in admin("app", "delete", "shop", code=1).err
    admin("app", "delete", "shop", "--yes")
    admin("send", topic, "hello", "--app", "shop", "--token", new, code=5)


def test_an_app_without_rights_sees_nothing_and_is_told_why(admin: CommandLine, topic: str) -> None:
    admin("topic", "create", topic)
    token = admin("app", "create", f"no-{topic}").out.strip()
    as_nobody = ("--app", f"no-{topic}", "--token", token)
    for command in (("topic", "list"), ("group", "list"), ("group", "lag")):
        said = admin(*command, *as_nobody).err
        assert said.startswith(f"no {command[0]}s on which app 'no-{topic}' has a right; ")


def test_names_that_are_not_there(admin: CommandLine) -> None:
    said = admin("app", "set", "nobody", "--owner", "x", code=4).err
    assert "there is no app 'nobody' (`ternmq app list` shows them)" in said


def test_a_wrong_token_is_first_of_all_a_wrong_token(admin: CommandLine) -> None:
    said = admin("topic", "list", "--token", "mistyped", code=5).err
    assert said == (
        "ternmq: app 'admin' is not known, or the token is wrong: check --app and --token, "
        "TERNMQ_APP and TERNMQ_TOKEN, or the context; if the token of admin is lost, start the "
        "broker once with `ternmq serve --new-admin-token`\n"
    )
    said = admin("topic", "list", "--token", "tmq_mistyped", code=5).err
    assert said.startswith(
        "ternmq: the token is incomplete: it was not copied completely: check --app and --token, "
    )
    assert "--new-admin-token" not in said
    assert "--new-admin-token" not in admin("topic", "list", "--app", "shop", code=5).err


def test_reading_a_topic_needs_the_right_though_it_is_empty(admin: CommandLine, topic: str) -> None:
    admin("topic", "create", topic, "--queues", 2)
    token = admin("app", "create", f"only-{topic}", "--grant", f"produce:{topic}").out.strip()
    as_producer = ("--app", f"only-{topic}", "--token", token)
    for more in ((), ("--since", "1h"), ("-n", 0), ("--queue", 1), ("--follow",)):
        assert "consume" in admin("tail", topic, *more, *as_producer, code=5).err
    assert admin("tail", topic).out == ""
    admin("send", topic, "x", *as_producer)
    assert "consume" in admin("tail", topic, *as_producer, code=5).err


def test_a_group_is_new_only_where_the_app_may_make_it(admin: CommandLine, topic: str) -> None:
    admin("topic", "create", topic)
    app = f"payment-{topic}"
    token = admin("app", "create", app, "--grant", f"consume:{topic}:payment").out.strip()
    as_payment = ("--app", app, "--token", token)
    said = admin("consume", topic, "-g", "other", "--wait", "0", *as_payment, code=5).err
    assert "is new" not in said
    assert f"app '{app}' has no grant to consume" in said
    assert "group payment is new" in admin(
        "consume", topic, "-g", "payment", "--wait", "0", *as_payment
    ).err  # fmt: skip


def test_a_dry_run_promises_nothing_that_the_app_may_not(
    admin: CommandLine, topic: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    name = f"declared_{topic.replace('-', '_')}"
    (tmp_path / f"{name}.py").write_text(
        "import ternmq\nclient = ternmq.connect()\n"
        f"client.declare(ternmq.Topic('{topic}', queues=2))\n"
    )
    admin("topic", "create", topic)
    token = admin("app", "create", f"no-{topic}").out.strip()
    as_nobody = ("--app", f"no-{topic}", "--token", token)
    missing = f"topic {topic}: it does not exist, or app 'no-{topic}' has no right on it"
    lacks = (
        f"app 'no-{topic}' has no grant to manage topic '{topic}' for every group ('*'); "
        f"`ternmq app set no-{topic} --grant manage:{topic}` gives it"
    )
    said = admin("apply", f"{name}:client", "--dry-run", *as_nobody, code=5).err
    assert f"1 difference, and without --dry-run nothing would be changed: {lacks}." in said
    assert "A topic on which the app has no right looks as if it did not exist" in said
    said = admin("apply", f"{name}:client", *as_nobody, code=5).err
    assert missing in said
    remedy = f"`ternmq app set no-{topic} --grant manage:{topic}` gives it"
    assert f"Nothing was changed: {lacks.partition(';')[0]}: {remedy}\n" in said
    admin("app", "set", f"no-{topic}", "--grant", f"produce:{topic}")
    said = admin("apply", f"{name}:client", "--dry-run", *as_nobody, code=5).err
    assert lacks in said
    assert "missing" not in said
    admin("apply", f"{name}:client", *as_nobody, code=5)
    admin("app", "set", f"no-{topic}", "--grant", f"manage:{topic}")
    said = admin("apply", f"{name}:client", "--dry-run", *as_nobody, code=8).err
    assert said == "ternmq: 1 difference; run it without --dry-run to make it\n"
    assert admin("apply", f"{name}:client", *as_nobody).err == "made 1 change\n"


@pytest.fixture
def deployed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, topic: str) -> str:
    """A program that declares two topics and a group on each, as a name for `apply`."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    name = f"deployed_{topic.replace('-', '_')}"
    (tmp_path / f"{name}.py").write_text(
        "import ternmq\nclient = ternmq.connect()\n"
        f"a, b = ternmq.Topic('{topic}-a'), ternmq.Topic('{topic}-b')\nclient.declare(a, b)\n"
        "for one in (a, b):\n"
        "    @client.handler(one, group='g')\n"
        "    async def handle(body: object) -> None: ...\n"
    )
    return f"{name}:client"


def test_an_app_that_manages_makes_groups_and_takes_no_message(
    admin: CommandLine, topic: str, deployed: str
) -> None:
    app = f"deploy-{topic}"
    token = admin("app", "create", app, "--grant", "manage:*").out.strip()
    as_deploy = ("--app", app, "--token", token)
    assert admin("apply", deployed, *as_deploy).err == "made 4 changes\n"
    admin("group", "create", f"{topic}-a", "other", *as_deploy)
    admin("send", f"{topic}-a", "x")
    for group in ("g", "other", "new"):
        said = admin("consume", f"{topic}-a", "-g", group, "--wait", "0", *as_deploy, code=5).err
        assert f"has no grant to consume topic '{topic}-a' for group '{group}'" in said
        assert f"`ternmq app set {app} --grant consume:{topic}-a:{group}` gives it" in said
    assert "has no grant to consume" in admin("tail", f"{topic}-a", *as_deploy, code=5).err
    assert admin("consume", f"{topic}-a", "-g", "g", "--max", 1, "--raw").out == "x\n"
    # To manage one group makes that group, and no other.
    token = admin("app", "create", f"one-{topic}", "--grant", f"manage:{topic}-a:mine").out.strip()
    as_one = ("--app", f"one-{topic}", "--token", token)
    admin("group", "create", f"{topic}-a", "mine", *as_one)
    said = admin("group", "create", f"{topic}-a", "theirs", *as_one, code=5).err
    assert "has no grant to consume or manage" in said


def test_an_apply_that_lacks_a_right_changes_nothing(
    admin: CommandLine, topic: str, deployed: str
) -> None:
    app = f"part-{topic}"
    token = admin("app", "create", app, "--grant", f"manage:{topic}-a").out.strip()
    as_part = ("--app", app, "--token", token)
    for dry_run in ((), ("--dry-run",)):
        said = admin("apply", deployed, *dry_run, *as_part, code=5)
        assert f"`ternmq app set {app} --grant manage:{topic}-b` gives it" in said.err
        assert "consume" not in said.err
        assert f"--grant manage:{topic}-b:g" not in said.err
        assert f"manage:{topic}-a" not in said.err
        admin("topic", "show", f"{topic}-a", code=4)
    assert "created" not in admin("apply", deployed, *as_part, code=5).out
    admin("topic", "create", f"{topic}-b")
    admin("app", "set", app, "--grant", f"produce:{topic}-b")  # so that it sees the topic
    said = admin("apply", deployed, "--dry-run", *as_part, code=5)
    assert f"`ternmq app set {app} --grant manage:{topic}-b:g` gives it" in said.err
    assert "consume" not in said.err
    admin("app", "set", app, "--grant", f"manage:{topic}-b")
    admin("apply", deployed, *as_part)


def test_an_apply_that_ends_half_way_says_what_it_did(
    admin: CommandLine, topic: str, deployed: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At an older broker, which does not say beforehand which rights are missing."""

    async def unknown(*_: object) -> None:
        return None

    monkeypatch.setattr(Admin, "refusals", unknown)
    app = f"half-{topic}"
    token = admin("app", "create", app, "--grant", f"manage:{topic}-a").out.strip()
    as_half = ("--app", app, "--token", token)
    checked = admin("apply", deployed, "--dry-run", *as_half, code=8).err
    assert f"if app '{app}' has the rights, which this older broker does not report" in checked
    ended = admin("apply", deployed, *as_half, code=5)
    assert ended.out == f"+ topic {topic}-a: created\n"
    assert f"topic {topic}-a: it is not there" not in ended.err
    assert f"topic {topic}-b: it does not exist, or app '{app}' has no right on it" in ended.err
    assert f"Made before: topic {topic}-a: created." in ended.err
    admin("topic", "delete", f"{topic}-a", "--yes")
    ended = admin("apply", deployed, "--json", *as_half, code=5)
    assert [(one["action"], one["topic"]) for one in ended.json] == [("create", f"{topic}-a")]


def test_without_a_token(admin: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TERNMQ_TOKEN")
    said = admin("topic", "list", code=5).err
    assert (
        "app 'admin' gave no token, and this broker requires one: check --app and --token" in said
    )
    assert said.endswith("`ternmq serve --new-admin-token`\n")
    assert "--new-admin-token" not in admin("topic", "list", "--app", "shop", code=5).err
    monkeypatch.delenv("TERNMQ_APP")
    said = admin("topic", "list", code=5).err
    assert "--token" in said
    assert "TERNMQ_TOKEN" in said
    admin("topic", "list", "--app", "admin", "--token", "tmq_wrong", code=5)


def test_an_app_that_is_there_or_is_not(admin: CommandLine) -> None:
    admin("app", "create", "twice")
    assert "app set" in admin("app", "create", "twice", code=1).err
    assert "did you mean twice?" in admin("app", "show", "twise", code=4).err
    admin("app", "delete", "nobody", "-y", code=4)
    assert "name at least one option to change" in admin("app", "set", "twice", code=2).err
    assert "has no grant" in admin("app", "set", "twice", "--revoke", "produce:x", code=4).err


@pytest.mark.parametrize("grant", ["produce", "write:orders", "produce:", ":", "manage:a:b:c", ""])
def test_grants_that_are_none(admin: CommandLine, grant: str) -> None:
    assert "RIGHT:TOPIC" in admin("app", "create", "x", "--grant", grant, code=2).err


def test_a_grant_to_send_to_a_group(admin: CommandLine) -> None:
    for option in ("--grant", "--deny"):
        said = admin("app", "create", "x", option, "produce:orders:g", code=2).err
        assert f"'{option}': 'produce:orders:g' names a group" in said
        assert said.endswith("write produce:orders (see `ternmq app create --help`)\n")


def test_a_token_in_a_context_file_is_nobody_elses(
    admin: CommandLine, guarded: BrokerProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    token = (guarded.data / "admin.token").read_text(encoding="ascii").strip()
    for name in ("URL", "APP", "TOKEN"):
        monkeypatch.delenv(f"TERNMQ_{name}")
    said = admin("context", "add", "safe", "--url", guarded.url, "--app", "admin",
                 "--token", token)  # fmt: skip
    assert token not in said.out + said.err
    file = tmp_path / "config" / "ternmq" / "contexts.json"
    assert file.stat().st_mode & 0o777 == 0o600
    assert file.parent.stat().st_mode & 0o077 == 0
    assert token not in admin("context", "list", "--json").out
    admin("topic", "list")
    file.chmod(0o644)
    assert f"chmod 600 {file}" in admin("topic", "list", code=1).err


def test_the_last_app_that_manages_apps_stays(
    cli: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with BrokerProcess("serve", tmp_path / "own", segment="4MiB") as own:
        monkeypatch.setenv("TERNMQ_URL", own.url)
        monkeypatch.setenv("TERNMQ_APP", "admin")
        monkeypatch.setenv("TERNMQ_TOKEN", (own.data / "admin.token").read_text().strip())
        _last(cli)


def _last(admin: CommandLine) -> None:
    said = admin("app", "delete", "admin", "--yes", code=2).err
    assert "app 'admin' is the last one with manage:*" in said
    assert "give another app manage:* first" in said
    assert "last one" in admin("app", "set", "admin", "--revoke", "manage:*", code=2).err
    assert "last one" in admin("app", "set", "admin", "--deny", "manage:x", code=2).err
    admin("app", "create", "half", "--grant", "manage:*", "--deny", "manage:secret")
    assert "last one" in admin("app", "delete", "admin", "--yes", code=2).err
    token = admin("app", "create", "other", "--grant", "manage:*").out.strip()
    admin("app", "delete", "admin", "--yes")
    as_other = ("--app", "other", "--token", token)
    assert [row[0] for row in admin("app", "list", *as_other).rows] == ["half", "other"]
    assert "last one" in admin("app", "delete", "other", "--yes", *as_other, code=2).err


def test_a_trace_asks_for_no_right_on_topics_that_nobody_named(
    admin: CommandLine, topic: str
) -> None:
    """A worker that forwards sees the topic that it sends to, and may not read it."""
    trace = ("message", "trace")
    for name in (topic, f"{topic}-out"):
        admin("topic", "create", name)
        admin("send", name, "x", "--id", f"id-{name}", "--key", topic)
    admin("group", "create", topic, "billing", "--start", "earliest")
    granted = ("--grant", f"consume:{topic}", "--grant", f"produce:{topic}-out")
    token = admin("app", "create", "forwarder", *granted).out.strip()
    as_forwarder = ("--app", "forwarder", "--token", token)
    for named in (
        (f"{topic}/0/0",),
        (f"id-{topic}",),
        ("--key", topic),
        (f"id-{topic}", "--topic", topic),
    ):
        traced = admin(*trace, *named, "--json", *as_forwarder)
        (found,) = traced.json
        assert (found["topic"], found["offset"]) == (topic, 0)
        assert [one["group"] for one in found["groups"]] == ["billing"]
        # Of a key there may be more than is shown.
        assert (f"{topic}-out" in traced.err) == (named[0] == "--key")
    said = admin(*trace, f"id-{topic}-out", *as_forwarder, code=4).err
    assert f"no message id-{topic}-out is kept in the topics that app 'forwarder' may read" in said
    assert f"not searched, without the right to consume them for every group: {topic}-out" in said
    assert "--grant" not in said
    said = admin(*trace, f"id-{topic}-out", "--topic", f"{topic}-out", *as_forwarder, code=5).err
    assert f"app 'forwarder' has no grant to consume topic '{topic}-out'" in said


def test_a_trace_of_a_place_says_the_right_that_is_missing(admin: CommandLine, topic: str) -> None:
    admin("topic", "create", topic)
    admin("topic", "create", f"{topic}-mine")
    admin("send", topic, "x")
    place = f"{topic}/0/0"
    token = admin("app", "create", "narrow", "--grant", f"consume:{topic}-mine").out.strip()
    as_narrow = ("--app", "narrow", "--token", token)
    said = admin("message", "trace", place, *as_narrow, code=5).err
    assert f"app 'narrow' has no grant to consume topic '{topic}'" in said
    assert said == admin("message", "get", place, *as_narrow, code=5).err
    # An id that reads like a place, in a topic that it may read, is found all the same.
    admin("send", f"{topic}-mine", "x", "--id", place)
    (found,) = admin("message", "trace", place, "--json", *as_narrow).json
    assert found["topic"] == f"{topic}-mine"
    said = admin("message", "trace", "nowhere-id", *as_narrow, code=4).err
    assert "is kept in the topics that app 'narrow' may read" in said
    elsewhere = ("message", "trace", place, "--topic", topic)
    assert f"consume topic '{topic}'" in admin(*elsewhere, *as_narrow, code=5).err


def test_a_trace_at_a_broker_that_does_not_say_the_rights(
    admin: CommandLine, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def old(self: Admin, asked: object) -> None:
        return None

    monkeypatch.setattr(Admin, "refusals", old)
    admin("topic", "create", topic)
    admin("send", topic, "x", "--id", f"id-{topic}")
    trace = ("message", "trace", f"id-{topic}")
    assert admin(*trace, "--json").json[0]["topic"] == topic
    token = admin("app", "create", "sender", "--grant", f"produce:{topic}").out.strip()
    said = admin(*trace, "--app", "sender", "--token", token, code=5).err
    assert f"no grant to consume topic '{topic}'" in said


def test_a_trace_names_some_of_many_topics_that_it_did_not_search(
    admin: CommandLine, topic: str
) -> None:
    names = [f"{topic}-{number}" for number in range(7)]
    for name in names:
        admin("topic", "create", name)
    token = admin("app", "create", "fan", "--grant", f"produce:{topic}-*").out.strip()
    said = admin("message", "trace", "nothing", "--app", "fan", "--token", token, code=4).err
    assert f": {', '.join(names[:5])} and 2 more)" in said


def test_a_revoke_never_gives_a_right(admin: CommandLine) -> None:
    admin("app", "create", "revoked", "--grant", "produce:*", "--grant", "produce:s", "--grant",
          "produce:s", "--deny", "produce:s")  # fmt: skip

    def grants() -> list[str]:
        told = json.loads(admin("app", "show", "revoked", "--json").out)["grants"]
        return [("not:" if one["deny"] else "") + f"produce:{one['topic']}" for one in told]

    assert sorted(grants()) == ["not:produce:s", "produce:*", "produce:s"]
    admin("app", "set", "revoked", "--revoke", "produce:s")
    assert sorted(grants()) == ["not:produce:s", "produce:*"]
    said = admin("app", "set", "revoked", "--revoke", "produce:s", code=4).err
    assert "revoked has no grant produce:s" in said
    admin("app", "set", "revoked", "--revoke", "not:produce:s")
    assert grants() == ["produce:*"]
    said = admin("app", "set", "revoked", "--revoke", "not:produce:s", code=4).err
    assert "revoked has no denial not:produce:s" in said


def test_who_manages_a_topic_may_replay_a_span_of_time(admin: CommandLine) -> None:
    admin("topic", "create", "spans")
    admin("send", "spans", "one")
    admin("group", "create", "spans", "g", "--start", "earliest")
    admin("consume", "spans", "-g", "g", "-n", "1")
    token = admin("app", "create", "spans-ops", "--grant", "manage:spans").out.strip()
    place = ("--app", "spans-ops", "--token", token)
    assert "1 message" in admin("group", "replay", "spans", "g", "--since", "1h", "-y", *place).err


def test_a_new_producer_group_belongs_to_the_app_that_makes_it(admin: CommandLine) -> None:
    said = admin("transaction", "policy", "owned", "--attempts", 3).err
    assert "created producer group owned: only app admin can use it" in said
    assert "created" not in admin("transaction", "policy", "owned", "--attempts", 4).err
