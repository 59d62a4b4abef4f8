"""``client.admin`` and ``client.deadletters``, blocking."""

from __future__ import annotations

from collections.abc import Callable

from ternmq.client.admin import admin as admin_engine
from ternmq.client.admin import deadletters as deadletters_engine
from ternmq.client.process import pickling
from ternmq.sync.facade import blocking, iterating
from ternmq.sync.loop_thread import LoopThread


class Admin(pickling.NotPickled):
    """``ternmq.client.admin.admin.Admin``, blocking."""

    _not_pickled = pickling.PART.format("admin")

    def __init__(self, reach: Callable[[], tuple[LoopThread, admin_engine.Admin]]) -> None:
        self.reach = reach

    create_topic = blocking(admin_engine.Admin.create_topic)
    change_topic = blocking(admin_engine.Admin.change_topic)
    delete_topic = blocking(admin_engine.Admin.delete_topic)
    topics = blocking(admin_engine.Admin.topics)
    topic = blocking(admin_engine.Admin.topic)
    create_group = blocking(admin_engine.Admin.create_group)
    change_group = blocking(admin_engine.Admin.change_group)
    switch_off = blocking(admin_engine.Admin.switch_off)
    switch_on = blocking(admin_engine.Admin.switch_on)
    pause_group = blocking(admin_engine.Admin.pause_group)
    resume_group = blocking(admin_engine.Admin.resume_group)
    delete_group = blocking(admin_engine.Admin.delete_group)
    groups = blocking(admin_engine.Admin.groups)
    group = blocking(admin_engine.Admin.group)
    standing = blocking(admin_engine.Admin.standing)
    reset_group = blocking(admin_engine.Admin.reset_group)
    skip = blocking(admin_engine.Admin.skip)
    put_app = blocking(admin_engine.Admin.put_app)
    delete_app = blocking(admin_engine.Admin.delete_app)
    apps = blocking(admin_engine.Admin.apps)
    put_hold = blocking(admin_engine.Admin.put_hold)
    delete_hold = blocking(admin_engine.Admin.delete_hold)
    holds = blocking(admin_engine.Admin.holds)
    transactions = blocking(admin_engine.Admin.transactions)
    checked_transactions = blocking(admin_engine.Admin.checked_transactions)
    transaction = blocking(admin_engine.Admin.transaction)
    resolve_transaction = blocking(admin_engine.Admin.resolve_transaction)
    check_transaction = blocking(admin_engine.Admin.check_transaction)
    put_producer_group = blocking(admin_engine.Admin.put_producer_group)
    producer_groups = blocking(admin_engine.Admin.producer_groups)
    delete_producer_group = blocking(admin_engine.Admin.delete_producer_group)
    scheduled = blocking(admin_engine.Admin.scheduled)
    scheduled_messages = blocking(admin_engine.Admin.scheduled_messages)
    clients = blocking(admin_engine.Admin.clients)
    status = blocking(admin_engine.Admin.status)
    accept_clock = blocking(admin_engine.Admin.accept_clock)
    alarms = blocking(admin_engine.Admin.alarms)
    clear_alarm = blocking(admin_engine.Admin.clear_alarm)


class DeadLetters(pickling.NotPickled):
    """``ternmq.client.admin.deadletters.DeadLetters``, blocking."""

    _not_pickled = pickling.PART.format("deadletters")

    def __init__(
        self, reach: Callable[[], tuple[LoopThread, deadletters_engine.DeadLetters]]
    ) -> None:
        self.reach = reach

    browse = iterating(deadletters_engine.DeadLetters.browse)
    waiting = iterating(deadletters_engine.DeadLetters.waiting)
    get = blocking(deadletters_engine.DeadLetters.get)
    standing = blocking(deadletters_engine.DeadLetters.standing)
    retry = blocking(deadletters_engine.DeadLetters.retry)
    delete = blocking(deadletters_engine.DeadLetters.delete)
    redrive = blocking(deadletters_engine.DeadLetters.redrive)
    matching = iterating(deadletters_engine.DeadLetters.matching)
    count = blocking(deadletters_engine.DeadLetters.count)
    retry_matching = blocking(deadletters_engine.DeadLetters.retry_matching)
    delete_matching = blocking(deadletters_engine.DeadLetters.delete_matching)
    redrive_matching = blocking(deadletters_engine.DeadLetters.redrive_matching)
