"""Which messages of the archive a replay selects, and what it sends of them: SQL run by DuckDB.

Conditions and expressions that a user gives are SQL of DuckDB over the columns of the archive
(``archive.schema.ARCHIVE``) and ``text``: the body, if it is UTF-8. They come from the user who
runs the command, and run in the same process.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final

import duckdb
import pyarrow as pa

from ternmq.model.errors import InvalidRequest, OptionError, TableError
from ternmq.pipeline.archive.finding import FILES
from ternmq.pipeline.archive.rewrite import may_have
from ternmq.pipeline.replay.sql import SETTABLE, condition, value
from ternmq.pipeline.tables.database import reading
from ternmq.pipeline.tables.datafile import DataFile
from ternmq.pipeline.tables.folder import Folder

_ROWS: Final = 8192
_SENT: Final = {
    "body": "value",
    "key": "key",
    "ordering_key": "order_key",
    "tag": "tags",
    "content_type": "content_type",
}
_FILES: Final = (
    "select * replace (day::date as day), try(decode(body)) as text "  # noqa: S608 - ours
    f"from {FILES} where topic = $topic"
)
"""The topic's rows of files, with the day from their folders."""
_NO_HEADERS: Final = "map([]::varchar[], []::varchar[])"


@dataclass(frozen=True)
class Selection:
    """Messages of one topic of the archive.

    Attributes:
        topic: Its name.
        since_us: Only stored at or after this, µs since 1970.
        until_us: Only stored before this.
        keys: Only with one of these keys.
        ids: Only with one of these ids, as printed or the application's own.
        where: Only those for which this condition is true.
        sets: Columns that are sent with another value: name -> expression.
        mark: Name of the replay for the headers ``x-replay`` and ``x-source``; empty: no headers.
    """

    topic: str
    since_us: int | None = None
    until_us: int | None = None
    keys: tuple[str, ...] = ()
    ids: tuple[str, ...] = ()
    where: str = ""
    sets: Mapping[str, str] = field(default_factory=dict)
    mark: str = ""

    def __post_init__(self) -> None:
        for name, expression in self.sets.items():
            if name not in SETTABLE:
                raise OptionError(
                    f"--set {name}: this column cannot be set; columns that can: "
                    + ", ".join(SETTABLE)
                )
            if not expression.strip():
                raise OptionError(f"--set {name}: give the new value")
        since, until = self.since_us, self.until_us
        if since is not None and until is not None and since >= until:
            raise InvalidRequest("the end of the time is not after its beginning")

    def may_be_in(self, one: DataFile) -> bool:
        """Return whether a file may hold any of them, according to the log."""
        if not may_have(one, self.topic):
            return False
        low, high = one.low.get("stored_time"), one.high.get("stored_time")
        if self.since_us is not None and isinstance(high, int) and high < self.since_us:
            return False
        return not (self.until_us is not None and isinstance(low, int) and low >= self.until_us)


@dataclass(frozen=True)
class Counted:
    """The selected rows of a queue in a file.

    Attributes:
        path: Path of the file.
        topic_number: Number of the topic.
        queue: The queue.
        rows: Number of rows.
        first: Offset of the first row.
        last: Offset of the last row.
        first_us: When the first row was stored, µs since 1970.
        last_us: When the last one was.
    """

    path: str
    topic_number: int
    queue: int
    rows: int
    first: int
    last: int
    first_us: int
    last_us: int


class Reading:
    """An empty database that reads files. Not thread-safe.

    Args:
        folder: Folder of the archive.
        selection: The selected messages.
    """

    def __init__(self, folder: Folder, selection: Selection) -> None:
        self._folder = folder
        self._selection = selection
        self._database: Any = reading(folder)
        # Rows of a file must be read in order.
        self._database.execute("set preserve_insertion_order = true")
        self._said: dict[str, str] | None = None
        """The user's conditions and expressions, checked, by column and ``where``."""

    def close(self) -> None:
        """Close the database."""
        self._database.close()

    def counts(self, files: Sequence[DataFile]) -> list[Counted]:
        """Return the selected rows of files, by queue; what has none is left out.

        Raises:
            OptionError: A condition or expression fails.
        """
        if not files:
            return []
        by_uri = {self._folder.uri_of(one.path): one.path for one in files}
        with _told():
            found = self._rows(
                'filename, topic_number, queue, count(*), min("offset"), max("offset"), '
                "epoch_us(min(stored_time)), epoch_us(max(stored_time))",
                list(by_uri),
                "group by filename, topic_number, queue",
            ).fetchall()
        return [Counted(by_uri[uri], *rest) for uri, *rest in found]

    def offsets(self, files: Sequence[DataFile]) -> list[tuple[int, int, int]]:
        """Return (topic number, queue, offset) of all selected rows, in order."""
        if not files:
            return []
        uris = [self._folder.uri_of(one.path) for one in files]
        with _told():
            columns = 'topic_number, queue, "offset"'
            found = self._rows(columns, uris, f"order by {columns}").fetchall()
        return [(number, queue, offset) for number, queue, offset in found]

    def rows(
        self, path: str, place: tuple[int, int], start: int, stop: int
    ) -> Iterator[pa.RecordBatch]:
        """Yield the selected rows of a queue in a file with offsets ``[start, stop)``, in order.

        ``place`` is the number of the topic, and the queue. The columns are ``offset``, ``queue``,
        and those that a writer of messages accepts.
        """
        uri = self._folder.uri_of(path)
        more: dict[str, object] = {
            "number": place[0], "queue": place[1], "start": start, "stop": stop
        }  # fmt: skip
        if self._selection.mark:
            more["mark"] = self._selection.mark
        behind = (
            "and topic_number = $number and queue = $queue "
            'and "offset" >= $start and "offset" < $stop'
        )
        with _told():
            said = self._as_said(uri)
            sent = ", ".join(_sent(name, said) for name in _SENT)
            chosen = f'"offset", queue, {sent}, {self._headers(said)}'
            found = self._rows(chosen, [uri], behind, more)
            made = getattr(found, "to_arrow_reader", None) or found.fetch_record_batch
            yield from made(_ROWS)

    def _headers(self, said: Mapping[str, str]) -> str:
        headers = f"coalesce({said.get('headers', 'headers')}, {_NO_HEADERS})"
        if not self._selection.mark:
            return f"{headers} as headers"
        source = "topic || '/' || queue || '/' || \"offset\""
        marks = f"map(['x-replay', 'x-source'], [$mark, {source}])"
        return f"map_concat({headers}, {marks}) as headers"

    def _rows(
        self,
        chosen: str,
        uris: Sequence[str],
        behind: str,
        more: Mapping[str, object] | None = None,
    ) -> Any:  # noqa: ANN401 - what comes from the library is not checked
        one = self._selection
        given: dict[str, object] = {"files": list(uris), "topic": one.topic, **(more or {})}
        conditions = ["true"]
        if one.since_us is not None:
            conditions.append("stored_time >= make_timestamptz($since)")
            given["since"] = one.since_us
        if one.until_us is not None:
            conditions.append("stored_time < make_timestamptz($until)")
            given["until"] = one.until_us
        if one.keys:
            conditions.append("key in (select unnest($keys))")
            given["keys"] = list(one.keys)
        if one.ids:
            conditions.append(
                "(message_id in (select unnest($ids)) or application_id in (select unnest($ids)))"
            )
            given["ids"] = list(one.ids)
        said = self._as_said(uris[0])
        if "where" in said:
            conditions.append(said["where"])
        asked = f"select {chosen} from ({_FILES}) where {' and '.join(conditions)} {behind}"  # noqa: S608
        return self._database.sql(asked, params=given)

    def _as_said(self, uri: str) -> Mapping[str, str]:
        """Return the user's SQL, ready for a query; checked once, on one file.

        Raises:
            OptionError: A text is not valid; names the option.
        """
        if self._said is None:
            one = self._selection
            database, given = self._database, {"files": [uri], "topic": one.topic}
            said = {
                name: value(database, name, text, _FILES, given) for name, text in one.sets.items()
            }
            if one.where:
                said["where"] = condition(database, one.where, _FILES, given)
            self._said = said
        return self._said


def _sent(name: str, said: Mapping[str, str]) -> str:
    kind = "" if name == "body" else "::varchar"
    return f'{said.get(name, name + kind)} as "{_SENT[name]}"'


@contextmanager
def _told() -> Iterator[None]:
    """Translate errors of a query.

    Raises:
        OptionError: The user's SQL fails on a row.
        TableError: The file cannot be read: it was compacted or erased meanwhile, and removed.
    """
    try:
        yield
    except duckdb.IOException as error:
        said = " ".join(str(error).split())
        raise TableError(
            f"the archive changed in the meantime ({said}): run the command again"
        ) from None
    except (duckdb.Error, pa.ArrowException) as error:
        said = " ".join(str(error).partition("LINE")[0].split())
        raise OptionError(
            f"--where or --set fails for a message of the archive: {said} (write `try(...)` around "
            "the part that fails: it is then NULL for such a message)"
        ) from None
