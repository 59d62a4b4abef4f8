"""A coordinator from its URL.

zk://a:2181,b:2181,c:2181/ternmq         ZooKeeper; all nodes are below the path, `/ternmq` if
                                         there is none; `zk://user:password@...` authenticates
                                         with the scheme digest
sqlite:////var/lib/ternmq/cluster.db     a file that all brokers of one machine share
mysql+pymysql://user:password@host/db    MySQL or MariaDB, also mysql:// and mariadb+pymysql://
postgresql+psycopg://user:...@host/db    PostgreSQL, also postgresql://
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final
from urllib.parse import unquote, urlsplit

from ternmq.cluster.coordination.port import DEADLINE_S, Coordinator
from ternmq.model.errors import SettingsError
from ternmq.model.words import nearest

if TYPE_CHECKING:
    import sqlalchemy as sa

_PATH: Final = "/ternmq"
_ZOOKEEPER_PORT: Final = 2181
_DRIVERS: Final = {
    "sqlite": "sqlite",
    "mysql": "mysql+pymysql",
    "mysql+pymysql": "mysql+pymysql",
    "mariadb": "mariadb+pymysql",
    "mariadb+pymysql": "mariadb+pymysql",
    "postgresql": "postgresql+psycopg",
    "postgresql+psycopg": "postgresql+psycopg",
}
"""Scheme of a URL -> the driver that is used."""


async def open_coordinator(url: str, *, deadline_s: float = DEADLINE_S) -> Coordinator:
    """Return a coordinator for the running loop; end it with ``close``.

    It does not wait for a connection, but the first calls do, for the time of one call. Later, a
    coordinator that is away answers ``Unknown`` at once.

    Args:
        url: See above. It may have a password, and is never part of an error.
        deadline_s: Longest time of a call.

    Raises:
        SettingsError: The URL is not one of a coordinator, or its driver is not installed.
    """
    scheme = urlsplit(url).scheme
    if scheme == "zk":
        return _zookeeper(url, deadline_s)
    if scheme in _DRIVERS:
        return _database(url, scheme, deadline_s)
    known = ["zk", *_DRIVERS]
    if not scheme:
        raise SettingsError(
            "a coordinator is named by a URL, such as zk://HOST:2181/ternmq or sqlite:////PATH/FILE"
        )
    alike = nearest(scheme, known)
    raise SettingsError(
        f"a coordinator's URL cannot begin with {scheme!r}"
        + (f"; did you mean {alike}://...?" if alike else f": use one of {', '.join(known)}")
    )


def _database(url: str, scheme: str, deadline_s: float) -> Coordinator:
    try:
        import sqlalchemy as sa

        from ternmq.cluster.coordination.database import DatabaseCoordinator
    except ModuleNotFoundError as error:
        raise _missing("SQLAlchemy", "cluster") from error
    try:
        parsed = sa.make_url(url).set(drivername=_DRIVERS[scheme])
    except (sa.exc.ArgumentError, ValueError) as error:
        raise SettingsError(f"not the URL of a database: {scheme}://...") from error
    _check_file(parsed)
    try:
        return DatabaseCoordinator(parsed, deadline_s=deadline_s)
    except ModuleNotFoundError as error:
        driver = _DRIVERS[scheme].partition("+")[2]
        extra = "mysql" if driver == "pymysql" else "postgresql"
        raise _missing(driver, f"cluster,{extra}") from error


def _check_file(url: sa.URL) -> None:
    if url.get_backend_name() == "sqlite" and url.database in {None, "", ":memory:"}:
        raise SettingsError(
            "a coordinator in SQLite needs a file that all brokers open: sqlite:////PATH/FILE"
        )


def _zookeeper(url: str, deadline_s: float) -> Coordinator:
    parts = urlsplit(url)
    account, _, hosts = parts.netloc.rpartition("@")
    user, colon, password = account.partition(":")
    path = parts.path.rstrip("/") or _PATH
    if parts.query or parts.fragment or (account and not (user and colon)):
        raise SettingsError(
            "a coordinator in ZooKeeper is zk://[USER:PASSWORD@]HOST[:PORT],.../PATH"
        )
    servers = [_server(host) for host in hosts.split(",")]
    try:
        from ternmq.cluster.coordination.zookeeper import ZooKeeperCoordinator
    except ModuleNotFoundError as error:
        raise _missing("kazoo", "cluster") from error
    return ZooKeeperCoordinator(
        ",".join(servers),
        path,
        deadline_s=deadline_s,
        account=(unquote(user), unquote(password)) if account else None,
    )


def _server(host: str) -> str:
    """Return a server with its port."""
    name, colon, port = host.rpartition(":")
    if not colon:
        name, port = host, str(_ZOOKEEPER_PORT)
    if not name or not port.isascii() or not port.isdecimal() or not 0 < int(port) < 2**16:
        raise SettingsError(f"not a server of ZooKeeper: {host!r}; write HOST or HOST:PORT")
    return f"{name}:{port}"


def _missing(package: str, extras: str) -> SettingsError:
    return SettingsError(
        f"{package} is not installed, and this coordinator needs it: pip install 'ternmq[{extras}]'"
    )
