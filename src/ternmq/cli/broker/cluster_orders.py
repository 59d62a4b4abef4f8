"""``ternmq cluster switch`` and ``promote``: an order, and what became of it."""

from __future__ import annotations

import contextlib
import time
from datetime import timedelta
from typing import Any, Final

import click

from ternmq.cli.broker.cluster_loss import Known, known_loss, loss_document, loss_lines
from ternmq.cli.broker.cluster_view import View, look
from ternmq.cli.commands import Command
from ternmq.cli.reach.connection import confirm, yes_option
from ternmq.cli.reach.coordinators import Cluster, asks_coordinator, changed, complete_brokers
from ternmq.cli.reach.parameters import NAME, POSITIVE_DURATION
from ternmq.cli.terminal import output
from ternmq.cli.terminal.exits import ExitCode, Failed
from ternmq.cli.terminal.live import every
from ternmq.cli.terminal.problems import near, not_found
from ternmq.cluster.coordination.record import Leadership
from ternmq.cluster.coordination.wishes import Change, Order
from ternmq.model.types import Epoch

_WAIT: Final = timedelta(seconds=30)
_LOOK_S: Final = 0.2


def _wait_option(function: Any) -> Any:
    return click.option(
        "--wait",
        type=POSITIVE_DURATION,
        metavar="DURATION",
        default=_WAIT,
        show_default=False,
        help="Longest time to wait for the change; after that, the request is withdrawn. "
        "Default: 30s.",
    )(function)


@click.command(cls=Command)
@click.option(
    "--to",
    metavar="BROKER",
    type=NAME,
    required=True,
    shell_complete=complete_brokers,
    help="Member that will be the primary.",
)
@_wait_option
@output.json_option
@asks_coordinator
async def switch(cluster: Cluster, to: str, wait: timedelta, as_json: bool) -> None:
    """Make another member the primary: the present primary hands over to it.

    The present primary accepts no more requests, hands over to the member, and continues as a
    follower. Clients whose URL names both brokers continue; the pause is usually below a second.
    """
    view = await look(cluster)
    _check_named(view, to)
    _check_runs(view, to)
    if not _is_member(view, to):
        raise Failed(
            f"{to} is not a member: it may lack messages that were answered. Wait until it has "
            "caught up (`ternmq cluster status`)",
            ExitCode.LATER,
        )
    if view.record.primary not in view.present:
        raise Failed(
            f"the primary {view.record.primary} does not run, so it cannot hand over: `ternmq "
            f"cluster promote {to}`"
        )
    await _carry_out(cluster, view, Change.SWITCH, to, wait, as_json=as_json)


@click.command(cls=Command)
@click.argument("broker", type=NAME, shell_complete=complete_brokers)
@click.option(
    "--accept-loss",
    is_flag=True,
    help="Promote a broker that is not a member. The answered messages that it lacks are lost.",
)
@click.option(
    "--dry-run",
    is_flag=True,
    help="With --accept-loss: only show what is known to be missing.",
)
@_wait_option
@yes_option
@output.json_option
@asks_coordinator
async def promote(
    cluster: Cluster,
    broker: str,
    accept_loss: bool,
    dry_run: bool,
    wait: timedelta,
    yes: bool,
    as_json: bool,
) -> None:
    """Make a member the primary, without the help of the old primary.

    Use it for a broker group with the setting `failover=operator`, when the primary is lost. If the
    primary still runs, it stays the primary: use `switch` then. A broker that is not a member may
    lack messages that were answered. It is promoted only if you give `--accept-loss`.

    Stop the old primary before you use `--accept-loss`, and make sure that nothing starts it
    meanwhile: if it runs and cannot reach the coordinator, it continues to answer its clients, and
    what it answers is lost, too. When it is started again later, it follows the new primary, and
    keeps in `repair/` what the new primary lacks. If the folder of the last primary is older
    than what was answered (a snapshot, for example), this broker does not start. To promote it, run
    the command while it is stopped, and start it within the time of `--wait`.
    """
    if dry_run and not accept_loss:
        raise click.UsageError("--dry-run is for --accept-loss", click.get_current_context())
    view = await look(cluster)
    if accept_loss:
        await _promote_with_loss(cluster, view, broker, wait, dry_run, yes=yes, as_json=as_json)
        return
    _check_named(view, broker)
    _check_runs(view, broker)
    if not _is_member(view, broker):
        raise Failed(
            f"{broker} is not a member: it may lack messages that were answered. Start a member: "
            f"{', '.join(_members(view))}. If none can be started, `ternmq cluster promote "
            f"{broker} --accept-loss --dry-run` shows what would be lost"
        )
    primary = view.record.primary
    if primary in view.present:
        question = (
            f"the primary {primary} runs, or was killed a moment ago. While it runs, it keeps the "
            f"lead, and `ternmq cluster switch --to {broker}` hands over. Ask for the change all "
            "the same?"
        )
        confirm(question, yes=yes)
    await _carry_out(cluster, view, Change.PROMOTE, broker, wait, as_json=as_json)


async def _promote_with_loss(
    cluster: Cluster,
    view: View,
    broker: str,
    wait: timedelta,
    dry_run: bool,
    *,
    yes: bool,
    as_json: bool,
) -> None:
    """Say what is known to be missing; then make a broker the primary that is no member."""
    _check_known(view, broker)
    primary = view.record.primary
    if broker != primary:
        _check_runs(view, broker)
    known = known_loss(view, broker)
    if not as_json:
        output.details(loss_lines(view, known))
    if dry_run:
        if as_json:
            output.document({"done": False, **loss_document(view, known)})
        else:
            output.note("nothing was changed: --dry-run")
        return
    stopped = f"{primary} is stopped" if broker != primary else "no other broker leads"
    confirm(
        f"make {broker} the primary, and lose what is missing? Make sure first that {stopped}: a "
        "primary that does not reach the coordinator goes on answering its clients",
        yes=yes,
    )
    await _carry_out(cluster, view, Change.PROMOTE, broker, wait, as_json=as_json, loss=known)


def _members(view: View) -> list[str]:
    return [one.broker for one in view.record.members]


def _is_member(view: View, broker: str) -> bool:
    return any(one.broker == broker and view.lives(one) for one in view.record.members)


def _check_known(view: View, broker: str) -> None:
    known = {*_members(view), *view.present}
    if broker not in known:
        raise not_found(
            f"broker group {view.group} has no broker {broker!r} that is a member or runs"
            f"{near(broker, known)}"
        )


def _check_named(view: View, broker: str) -> None:
    _check_known(view, broker)
    if broker == view.record.primary:
        raise Failed(f"{broker} is the primary already, of epoch {view.record.epoch}")


def _check_runs(view: View, broker: str) -> None:
    if broker not in view.present:
        raise Failed(f"{broker} does not run: start it, and wait until its copy counts again")


async def _carry_out(
    cluster: Cluster,
    view: View,
    change: Change,
    to: str,
    wait: timedelta,
    *,
    as_json: bool,
    loss: Known | None = None,
) -> None:
    """Give the order, wait for what becomes of it, and say so."""
    began = time.monotonic()
    order = Order(
        change=change,
        broker=to,
        epoch=view.record.epoch,
        at_us=time.time_ns() // 1000,
        accepted=None if loss is None else loss.accepted,
    )
    changed(await cluster.group.put_order(order))
    try:
        record = await _outcome(cluster, order, began + wait.total_seconds())
    except BaseException:  # Ctrl-C: nobody waits for the change any more
        with contextlib.suppress(Failed):
            await _withdraw(cluster, order)
        raise
    if record.epoch == order.epoch:
        record = await _withdraw(cluster, order)
    waited = output.span(wait.total_seconds())
    if record.epoch == order.epoch:
        raise Failed(
            f"no broker has made the change within {waited}, and the request is withdrawn: "
            f"{record.primary} is the primary of epoch {record.epoch}; the brokers' logs say more",
            ExitCode.LATER,
        )
    if record.primary != to:
        raise Failed(
            f"{record.primary} is the primary now, of epoch {record.epoch}, and not {to}: "
            f"{record.why}"
        )
    if not _has_begun(record):
        raise Failed(
            f"{to} is the primary of epoch {record.epoch}, and does not serve clients yet after "
            f"{waited}: its log says why",
            ExitCode.LATER,
        )
    took = time.monotonic() - began
    spared = loss is not None and record.cut_epoch <= order.epoch
    if as_json:
        output.document(
            {
                "primary": to,
                "epoch": record.epoch,
                "before": view.record.primary,
                "seconds": round(took, 3),
                **({} if loss is None or spared else {"loss": loss_document(view, loss)}),
            }
        )
        return
    output.note(f"{to} is the primary of epoch {record.epoch}, after {output.span(took)}")
    if spared:
        output.note("no loss had to be accepted: its journal has what was answered")


async def _outcome(cluster: Cluster, order: Order, until: float) -> Leadership:
    """Return the record when the next reign has begun, or as it is by then."""
    record = await cluster.record()
    async for _ in every(_LOOK_S):
        found = await cluster.group.read()
        if isinstance(found, Leadership):
            record = found
        if record.epoch > order.epoch and _has_begun(record):
            break
        if time.monotonic() >= until:
            break
    return record


def _has_begun(record: Leadership) -> bool:
    """Return whether the reign of the record has begun: its primary serves clients."""
    return record.floor is not None and record.floor.epoch == record.epoch


async def _withdraw(cluster: Cluster, order: Order) -> Leadership:
    """Replace the order by one that is void; return the record as it is then."""
    void = Order(change=order.change, broker=order.broker, epoch=Epoch(0), at_us=order.at_us)
    changed(await cluster.group.put_order(void))
    return await cluster.record()
