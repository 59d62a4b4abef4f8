"""Handlers with an inbox on a database of Django: one transaction, however they end."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from tests.integration.reliable.conftest import bodies

BEGIN = """
import contextlib, threading
from concurrent.futures import ThreadPoolExecutor
import django.db
from django.db import connection, connections, transaction
import ternmq, ternmq.sync
from ternmq.reliable import Inbox, Outbox, idempotent
from tests.integration.reliable.inboxes import Message
inbox = Inbox.django(wait=1.0)
with connection.cursor() as cursor:
    cursor.execute("CREATE TABLE effects (id VARCHAR(40))")

class Failed(Exception): pass

def effect(id_, using="default"):
    with connections[using].cursor() as cursor:
        cursor.execute("INSERT INTO effects VALUES (%s)", [id_])

def effects(using="default"):
    with connections[using].cursor() as cursor:
        cursor.execute("SELECT id FROM effects ORDER BY id")
        return [one for [one] in cursor.fetchall()]

def remembered(using="default"):
    with connections[using].cursor() as cursor:
        cursor.execute("SELECT id FROM ternmq_inbox ORDER BY id")
        return [bytes(one).decode() for [one] in cursor.fetchall()]

@contextlib.contextmanager
def raises(kind, text=""):
    try:
        yield
    except kind as error:
        assert text in str(error), error
    else:
        raise AssertionError(f"no {kind.__name__}")

def in_thread(function, *given):
    with ThreadPoolExecutor(1) as threads:
        return threads.submit(function, *given).result(20)
"""
END = "\ninbox.close()\n"
ROOT = Path(__file__).parents[3]


def run(url: str, program: str, broker: str = "") -> None:
    """Run a program in a Django project that has an inbox, and a table ``effects``."""
    whole = BEGIN + textwrap.dedent(program) + END
    done = subprocess.run(
        [sys.executable, "-W", "error", "-m", "tests.integration.reliable.django_project", url,
         broker],
        input=whole, capture_output=True, text=True, check=False, timeout=60, cwd=ROOT,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "done", done.stdout + done.stderr


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/shop.db"


# -- one transaction ------------------------------------------------------------------------------


def test_id_and_effect_are_one_transaction(database) -> None:
    program = """
    fails = True

    @idempotent(inbox, result=True)
    def handle(order):
        assert connection.in_atomic_block
        effect(order)
        if fails:
            raise fails
        return {"done": order}

    for fails in (Failed(), ternmq.Retry("later"), ternmq.Reject("never")):
        with raises(type(fails)):
            handle("order-7", Message("order-7"))
        assert (effects(), remembered()) == ([], [])
    fails = None
    for _ in range(3):
        assert handle("order-7", Message("order-7")) == {"done": "order-7"}
    assert (effects(), remembered()) == (["order-7"], ["order-7"])
    assert (inbox.stats().handled, inbox.stats().suppressed) == (1, 2)
    assert not connection.in_atomic_block
    assert inbox.forget(["order-7"], topic="orders", group="billing") == 1
    handle("order-7", Message("order-7"))
    assert effects() == ["order-7", "order-7"]
    """
    run(database, program)


def test_blocks_of_a_handler_are_savepoints(database) -> None:
    program = """
    @idempotent(inbox)
    def handle(order):
        with transaction.atomic():
            effect("kept")
        with contextlib.suppress(Failed), transaction.atomic():
            effect("undone")
            raise Failed
        with contextlib.suppress(django.db.Error), transaction.atomic():
            effect("x" * 1_000_000 if connection.vendor != "sqlite" else None)
            with connection.cursor() as cursor:
                cursor.execute("INSERT INTO nothing VALUES (1)")

    handle("", Message("order-7"))
    assert (effects(), remembered()) == (["kept"], ["order-7"])
    """
    run(database, program)


def test_a_handler_that_ends_its_transaction_fails(database) -> None:
    program = """
    def statement(text):
        with connection.cursor() as cursor:
            cursor.execute(text)

    def without_savepoint():
        with contextlib.suppress(Failed), transaction.atomic(savepoint=False):
            raise Failed

    ways = [
        (transaction.commit, django.db.transaction.TransactionManagementError, ""),
        (transaction.rollback, django.db.transaction.TransactionManagementError, ""),
        (lambda: transaction.set_rollback(True), ternmq.InvalidHandler, "marked"),
        (without_savepoint, ternmq.InvalidHandler, "marked"),
        (connection.close, ternmq.InvalidHandler, "marked"),
        (lambda: statement("ROLLBACK"), ternmq.InvalidHandler, "committed or rolled back"),
    ]
    for way, kind, text in ways:
        @idempotent(inbox)
        def handle(order):
            effect("lost")
            way()

        with raises(kind, text):
            handle("", Message("order-7"))
        assert (effects(), remembered()) == ([], []), way
    assert inbox.stats().handled == 0

    @idempotent(inbox)
    def commits(order):
        statement("COMMIT")

    with raises(ternmq.InvalidHandler, "committed or rolled back"):
        commits("", Message("order-7"))
    """
    run(database, program)


def test_an_error_that_a_handler_has_swallowed(servers, tmp_path) -> None:
    """PostgreSQL answers the COMMIT with a rollback, and nothing raises an error."""
    program = """
    @idempotent(inbox)
    def handle(order):
        effect("lost")
        with contextlib.suppress(django.db.Error), connection.cursor() as cursor:
            cursor.execute("INSERT INTO nothing VALUES (1)")

    with raises(ternmq.InvalidHandler, "savepoint"):
        handle("", Message("order-7"))
    assert (effects(), remembered(), inbox.stats().handled) == ([], [], 0)
    """
    run(servers.new("postgresql", tmp_path), program)


def test_a_hook_of_the_commit_that_fails(database) -> None:
    """It fails after the commit: the message comes again, and is known."""
    program = """
    def hook():
        raise Failed

    @idempotent(inbox)
    def handle(order):
        effect(order)
        transaction.on_commit(hook)

    with raises(Failed):
        handle("order-7", Message("order-7"))
    handle("order-7", Message("order-7"))
    assert (effects(), inbox.stats().suppressed) == (["order-7"], 1)
    """
    run(database, program)


# -- two at once ----------------------------------------------------------------------------------


def test_two_handlers_with_one_id(database) -> None:
    program = """
    inside, go_on = threading.Event(), threading.Event()
    calls = []

    @idempotent(inbox)
    def handle(order):
        calls.append(order)
        inside.set()
        assert go_on.wait(20)
        effect(order)

    with ThreadPoolExecutor(2) as threads:
        one = threads.submit(handle, "order-7", Message("order-7"))
        assert inside.wait(20)
        with raises(ternmq.Retry, "in progress elsewhere"):
            threads.submit(handle, "order-7", Message("order-7")).result(20)
        other = threads.submit(handle, "order-7", Message("order-7"))
        threading.Timer(0.2, go_on.set).start()
        one.result(20), other.result(20)
    assert (calls, effects()) == (["order-7"], ["order-7"])
    stats = inbox.stats()
    assert (stats.handled, stats.suppressed, stats.waited) == (1, 1, 1)
    """
    run(database, program)


def test_a_lock_of_another_program_on_the_file(url) -> None:
    """The wait is the inbox's own, not ``timeout`` of the settings (an hour), which comes back."""
    program = """
    import sqlite3, time
    def waits():
        with connection.cursor() as cursor:
            cursor.execute("PRAGMA busy_timeout")
            return cursor.fetchone()[0]

    seen = []
    @idempotent(inbox)
    def handle(order):
        seen.append(waits())

    other = sqlite3.connect(connection.settings_dict["NAME"], isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    connection.settings_dict["CONN_MAX_AGE"] = None
    connection.settings_dict["OPTIONS"]["timeout"] = 3600  # the test ends before
    connection.close()
    with raises(ternmq.Retry, "in progress elsewhere"):
        handle("", Message("order-7"))
    assert waits() == 3_600_000
    other.execute("COMMIT")
    other.close()
    handle("", Message("order-7"))
    assert (seen, waits()) == ([3_600_000], 3_600_000)
    """
    run(url, program)


# -- blocks around, and how connections are configured --------------------------------------------


def test_a_block_around_the_handler(database) -> None:
    program = """
    @idempotent(inbox)
    def handle(order):
        effect(order)

    with raises(ternmq.InvalidHandler, "another transaction.atomic()"), transaction.atomic():
        handle("order-7", Message("order-7"))
    with raises(ternmq.InvalidHandler):
        transaction.atomic(handle)("order-7", Message("order-7"))
    assert (effects(), remembered()) == ([], [])
    connections["default"].settings_dict["ATOMIC_REQUESTS"] = True  # there are no requests
    handle("order-7", Message("order-7"))
    assert (effects(), remembered()) == (["order-7"], ["order-7"])
    """
    run(database, program)


def test_a_connection_that_is_not_in_autocommit(database) -> None:
    program = """
    @idempotent(inbox)
    def handle(order):
        effect(order)

    connections["default"].settings_dict["AUTOCOMMIT"] = False
    def visit():
        with raises(ternmq.OutsideTransaction, "AUTOCOMMIT"):
            handle("order-7", Message("order-7"))
    in_thread(visit)
    connections["default"].settings_dict["AUTOCOMMIT"] = True
    assert (effects(), remembered()) == ([], [])
    """
    run(database, program)


def test_rows_of_a_test_case_are_rolled_back_with_it(database) -> None:
    program = """
    from django.test import TestCase

    @idempotent(inbox)
    def handle(order):
        effect(order)
        if order == "fails":
            raise Failed

    class Shop(TestCase):
        def test(self):
            for _ in range(2):
                handle("order-7", Message("order-7"))
            with self.assertRaises(Failed):
                handle("fails", Message("order-8"))
            self.assertEqual((effects(), remembered()), (["order-7"], ["order-7"]))
            self.assertEqual(inbox.stats().suppressed, 1)
            self.assertEqual(inbox.forget(["order-7"], topic="orders", group="billing"), 1)
            handle("order-7", Message("order-7"))
            self.assertEqual(effects(), ["order-7", "order-7"])

    import unittest
    result = unittest.TextTestRunner().run(unittest.defaultTestLoader.loadTestsFromTestCase(Shop))
    assert result.wasSuccessful() and result.testsRun == 1, result.errors + result.failures
    assert (effects(), remembered()) == ([], [])
    """
    run(database, program)


def test_connections_are_closed_as_around_requests(database) -> None:
    program = """
    @idempotent(inbox)
    def handle(order):
        effect(order)
        seen.append(connection.connection)

    def two():
        for id_ in ("a", "b"):
            handle(id_, Message(id_ + str(len(seen))))
        return connection.connection

    seen = []
    assert in_thread(two) is None
    assert seen[0] is not seen[1]
    connection.settings_dict["CONN_MAX_AGE"] = None
    def kept():
        left = two()
        assert left is not None and seen[2] is seen[3] is left
        connection.close()
    in_thread(kept)
    """
    run(database, program)


@pytest.mark.parametrize("kind", ["postgresql", "mariadb"])
def test_a_connection_that_broke(servers, tmp_path, kind) -> None:
    """The message of that moment fails; for the next one there is another connection."""
    program = """
    connection.settings_dict["CONN_MAX_AGE"] = None

    @idempotent(inbox)
    def handle(order):
        effect(order)

    def cut(number):
        with connection.cursor() as cursor:
            cursor.execute(f"SELECT pg_terminate_backend({number})" if
                           connection.vendor == "postgresql" else f"KILL {number}")

    def number():
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_backend_pid()" if connection.vendor == "postgresql"
                           else "SELECT CONNECTION_ID()")
            return cursor.fetchone()[0]

    def work():
        handle("order-1", Message("order-1"))
        in_thread(cut, number())
        with raises(django.db.Error) as failed:
            handle("order-2", Message("order-2"))
        handle("order-2", Message("order-2"))
        connection.close()

    in_thread(work)
    assert (effects(), remembered()) == (["order-1", "order-2"],) * 2
    """
    run(servers.new(kind, tmp_path), program)


# -- what does not fit together -------------------------------------------------------------------


def test_handlers_that_do_not_fit(url) -> None:
    program = """
    import sqlalchemy.orm
    async def awaited(order): ...
    def session(order, session: sqlalchemy.orm.Session): ...
    with raises(ternmq.InvalidHandler, "make it a `def`"):
        idempotent(inbox)(awaited)
    with raises(ternmq.InvalidHandler, "leave the parameter out"):
        idempotent(inbox)(session)
    with raises(ternmq.InvalidRequest, "has no 'other'"):
        Inbox.django("other")
    with raises(ternmq.InvalidRequest):
        Inbox.django(wait=0)
    from ternmq.reliable import Steps
    client = ternmq.sync.connect(broker)
    steps = Steps.django(client, "transfers", group="bank")
    with raises(ternmq.InvalidHandler, "make it a `def`"):
        steps.step(awaited)
    with raises(ternmq.InvalidHandler, "leave the parameter out"):
        steps.step(session)
    with raises(ternmq.InvalidRequest, "has no 'other'"):
        Steps.django(client, "transfers", group="bank", using="other")
    with raises(ternmq.InvalidRequest, "ternmq.sync"):
        Steps.django(ternmq.connect(broker), "transfers", group="bank")
    """
    run(url, program, "ternmq://127.0.0.1:1")


def test_django_that_is_not_configured() -> None:
    program = """
import os
os.environ.pop("DJANGO_SETTINGS_MODULE", None)
import ternmq
from ternmq.reliable import Inbox
try:
    Inbox.django()
except ternmq.InvalidRequest as error:
    print(error)
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60
    )
    assert "Django's settings cannot be used" in done.stdout


def test_another_alias(url) -> None:
    program = """
    from django.core.management import call_command
    call_command("migrate", database="stock", verbosity=0)
    with connections["stock"].cursor() as cursor:
        cursor.execute("CREATE TABLE effects (id VARCHAR(40))")
    stock = Inbox.django("stock")

    @idempotent(stock)
    def handle(order):
        effect("here", "default")
        effect("there", "stock")
        raise Failed

    with raises(Failed):
        handle("", Message("order-7"))
    assert (effects("stock"), remembered("stock")) == ([], [])
    assert (effects(), remembered()) == (["here"], [])  # another database: not in its transaction
    stock.close()
    """
    run(url, program)


def test_tables_that_are_missing(database) -> None:
    program = """
    @idempotent(inbox)
    def handle(order): ...

    from django.core.management import call_command
    call_command("migrate", "ternmq_reliable", "zero", verbosity=0)
    with raises(ternmq.DatabaseNotPrepared):
        handle("", Message("order-7"))
    assert inbox.prepare()
    handle("", Message("order-7"))
    """
    run(database, program)


# -- beside handlers ------------------------------------------------------------------------------


def test_rows_whose_time_is_over_are_removed(database) -> None:
    program = """
    from ternmq.reliable.inbox import sql
    @idempotent(inbox, keep=0.001)
    def handle(order): ...

    def cleaners():
        return [one for one in threading.enumerate() if "ternmq-inbox" in one.name]

    handle("", Message("order-7"))
    deadline = threading.Event()
    for _ in range(800):  # the thread runs at its first look
        if not remembered():
            break
        deadline.wait(0.05)
    assert remembered() == [] and len(cleaners()) == 1
    with connection.cursor() as cursor:
        cursor.execute("SELECT tick FROM ternmq_lease")
        assert cursor.fetchone()[0] > 0
    inbox.close()
    assert not cleaners()
    """
    run(database, program)


def test_a_forked_child_has_connections_of_its_own(database) -> None:
    program = """
    import os, traceback
    @idempotent(inbox)
    def handle(order):
        effect(order)

    in_thread(handle, "a", Message("a"))
    connection.close()
    child = os.fork()
    if not child:
        code = 1
        try:
            in_thread(handle, "a", Message("a"))
            in_thread(handle, "b", Message("b"))
            assert inbox.stats().suppressed == 1
            inbox.close()
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)
    assert os.waitpid(child, 0)[1] == 0
    in_thread(handle, "b", Message("b"))
    assert (effects(), remembered(), inbox.stats().suppressed) == (["a", "b"], ["a", "b"], 1)
    """
    run(database, program)


# -- with a broker --------------------------------------------------------------------------------


@pytest.mark.row("M1")
def test_what_a_handler_sends_is_part_of_its_transaction(real, client, database) -> None:
    program = """
    client = ternmq.sync.connect(broker)
    outbox = Outbox.django(client)
    attempts = []

    @client.handler("orders", group="billing", retry=ternmq.RetryPolicy(first=0.01, jitter=0))
    @idempotent(inbox)
    def bill(order: str, delivery: ternmq.sync.Delivery):
        attempts.append(delivery.attempt)
        effect(order)
        assert client.send("invoices", f"{order} {delivery.attempt}").pending
        if delivery.attempt == 1:
            raise Failed

    import logging
    logging.getLogger("ternmq").disabled = True
    running = threading.Thread(target=client.run)
    running.start()
    client.send("orders", "order-7", id="order-7")
    pause = threading.Event()
    for _ in range(400):
        if inbox.stats().handled:
            break
        pause.wait(0.05)
    client.stop()
    running.join(20)
    outbox.flush(20)
    outbox.close()
    client.close()
    assert (attempts, effects(), remembered()) == ([1, 2], ["order-7"], ["order-7"])
    """
    run(database, program, real.url)
    assert bodies(client, "invoices") == [b"order-7 2"]
