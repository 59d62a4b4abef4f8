"""Django: inside ``transaction.atomic`` a send is a row, outside it is a send."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

import ternmq.sync
from ternmq.testing import InProcessBroker
from tests.black_box.process import wait_until
from tests.integration.reliable.conftest import bodies

BEGIN = """
from django.db import connection, transaction
import ternmq, ternmq.sync
from ternmq.reliable import Outbox
client = ternmq.sync.connect(broker)
outbox = Outbox.django(client)
with connection.cursor() as cursor:
    cursor.execute("CREATE TABLE IF NOT EXISTS orders (id INTEGER)")
def order():
    with connection.cursor() as cursor:
        cursor.execute("INSERT INTO orders VALUES (1)")
def orders():
    with connection.cursor() as cursor:
        cursor.execute("SELECT count(*) FROM orders")
        return cursor.fetchone()[0]
"""
END = """
outbox.flush(20)
outbox.close()
client.close()
"""


def run(url: str, broker: str, program: str, *, end: str = END) -> None:
    """Run a program in a Django project."""
    whole = BEGIN + textwrap.dedent(program) + end
    done = subprocess.run(
        [sys.executable, "-W", "error", "-m", "tests.integration.reliable.django_project", url,
         broker],
        input=whole, capture_output=True, text=True, check=False, timeout=60,
        cwd=Path(__file__).parents[3],
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "done", done.stdout + done.stderr


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/shop.db"


@pytest.fixture
def client(real: InProcessBroker):
    with ternmq.sync.connect(real.url) as made:
        yield made


PROGRAM = """
with transaction.atomic():
    order()
    assert client.send("orders", b"1", within=connection).pending
    assert client.send("orders", b"2").pending
    assert [one.body for one in outbox.rows()] == [b"1", b"2"]
    try:
        with transaction.atomic():
            client.send("orders", b"no")
            raise KeyError
    except KeyError:
        pass
    assert not client.send("orders", b"3", within=False).pending
try:
    with transaction.atomic():
        order()
        client.send("orders", b"no")
        raise KeyError
except KeyError:
    pass
assert not client.send("orders", b"4").pending
with transaction.atomic():
    client.send("ordered", b"5", ordering_key="k")
    client.send("ordered", b"6", ordering_key="k")
assert orders() == 1
try:
    client.send("orders", b"no", within=connection)
except ternmq.OutsideTransaction:
    pass
else:
    raise AssertionError("it was sent")
"""


@pytest.mark.row("J1", "J2")
def test_what_is_committed_is_sent(real, client, database) -> None:
    run(database, real.url, PROGRAM)
    assert sorted(bodies(client)) == [b"1", b"2", b"3", b"4"]
    assert bodies(client, "ordered") == [b"5", b"6"]


def test_rows_in_a_test_case_stay_in_its_transaction(real, client, url) -> None:
    program = """
    from django.test import TestCase
    class Shop(TestCase):
        def test(self):
            order()
            client.send("orders", b"1")
            [row] = outbox.rows()
            assert (row.topic, row.body) == ("orders", b"1")
    import unittest
    result = unittest.TextTestRunner().run(unittest.defaultTestLoader.loadTestsFromTestCase(Shop))
    assert result.wasSuccessful(), result.errors
    """
    run(url, real.url, program)
    assert bodies(client) == []


def test_a_database_in_memory_keeps_rows_and_sends_nothing(real, client) -> None:
    program = """
    with transaction.atomic():
        client.send("orders", b"1")
        [row] = outbox.rows()
    import threading
    assert not [one for one in threading.enumerate() if "outbox" in one.name]
    """
    run("sqlite:///:memory:", real.url, program, end="\noutbox.close()\nclient.close()\n")
    assert bodies(client) == []


def test_the_app_can_be_migrated_back(real, database) -> None:
    program = """
    from django.core.management import call_command
    call_command("migrate", "ternmq_reliable", "zero", verbosity=0)
    assert "ternmq_outbox" not in connection.introspection.table_names()
    call_command("migrate", verbosity=0)
    """
    run(database, real.url, program)


def test_what_is_refused(real, url) -> None:
    program = """
    other = ternmq.connect(broker)
    for call in (lambda: Outbox.django(client, "other"), lambda: Outbox.django(other)):
        try:
            call()
        except ternmq.InvalidRequest:
            pass
        else:
            raise AssertionError("it was made")
    """
    run(url, real.url, program)


def test_a_transaction_that_is_committed_by_hand_has_rows(real, client, database) -> None:
    """They were sent at once, and could not be rolled back."""
    program = """
    def refused(said, call):
        try:
            call()
        except ternmq.OutsideTransaction as error:
            assert said in str(error), error
        else:
            raise AssertionError("it was accepted")

    transaction.set_autocommit(False)
    order()
    assert client.send("orders", b"no").pending
    assert [one.body for one in outbox.rows()] == [b"no"]
    transaction.rollback()
    assert client.send("orders", b"1").pending  # before the first statement
    assert client.send("orders", b"2", within=connection).pending
    with transaction.atomic():  # does not commit here
        assert client.send("orders", b"3").pending
    refused("commits by hand", outbox.flush)
    transaction.commit()
    client.send("orders", b"lost")
    transaction.rollback()
    transaction.set_autocommit(True)
    assert not client.send("orders", b"4").pending
    assert outbox.stats().written == 5
    """
    run(database, real.url, program)
    wait_until(lambda: len(bodies(client)) == 4, "all were sent")
    assert sorted(bodies(client)) == [b"1", b"2", b"3", b"4"]


def test_what_is_no_outbox_of_django(real, database) -> None:
    program = """
    def refused(error, said, call, *values, **named):
        try:
            call(*values, **named)
        except error as raised:
            assert said in str(raised), raised
        else:
            raise AssertionError("it was accepted")

    refused(ternmq.InvalidRequest, "has an outbox on", Outbox.django, client)
    other = ternmq.sync.connect(broker)
    refused(ternmq.InvalidRequest, "relay=", Outbox.django, other, relay=5)
    connection.settings_dict["AUTOCOMMIT"] = False
    refused(ternmq.OutsideTransaction, "AUTOCOMMIT", Outbox.django, other)
    connection.settings_dict["AUTOCOMMIT"] = True
    other.close()
    """
    run(database, real.url, program)


def test_missing_tables_name_the_database_and_what_makes_them(real, database) -> None:
    program = """
    with connection.cursor() as cursor:
        cursor.execute("DROP TABLE ternmq_outbox")
    try:
        with transaction.atomic():
            client.send("orders", b"no")
    except ternmq.DatabaseNotPrepared as error:
        settings = connection.settings_dict
        place = f":{settings['PORT']}/" if settings["PORT"] else f"sqlite:///{settings['NAME']}"
        assert place in str(error), error
        assert "manage.py migrate" in str(error)
        assert "outbox prepare" not in str(error)
    else:
        raise AssertionError("it was written")
    """
    run(database, real.url, program, end="outbox.close(0)\nclient.close()\n")
