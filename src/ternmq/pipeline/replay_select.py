"""Which messages of the archive are meant, and what of them is sent again: SQL that DuckDB runs.

Conditions and expressions that a user gives are SQL of DuckDB over the columns of the archive
(``schemas.ARCHIVE``), and ``text``: the body, where it is UTF-8. They are the user's own, and run
where the command runs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final

import duckdb
import pyarrow as pa

from ternmq.model.errors import InvalidRequest, OptionError, TableError
from ternmq.pipeline.files import DataFile
from ternmq.pipeline.folder import Folder

SETTABLE: Final = ("body", "key", "ordering_key", "tag", "headers", "content_type")
_ROWS: Final = 8192
_SENT: Final = {
    "body": "value",
    "key": "key",
    "ordering_key": "order_key",
    "tag": "tags",
    "content_type": "content_type",
}
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
        where: Only those for which this is true.
        sets: Columns that are sent with another value: name -> expression.
        mark: Name of the replay, put in the headers ``x-replay`` and ``x-source``; empty: not.
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
                    f"--set {name}: there is no such column to set; there are: "
                    + ", ".join(SETTABLE)
                )
            if not expression.strip():
                raise OptionError(f"--set {name}: say what it is to be")
        since, until = self.since_us, self.until_us
        if since is not None and until is not None and since >= until:
            raise InvalidRequest("the time ends before it begins")

    def may_be_in(self, one: DataFile) -> bool:
        """Return whether a file may hold any of them, by what the log says of it."""
        if one.partition["topic"] != self.topic:
            return False
        low, high = one.low.get("stored_time"), one.high.get("stored_time")
        if self.since_us is not None and isinstance(high, int) and high < self.since_us:
            return False
        return not (self.until_us is not None and isinstance(low, int) and low >= self.until_us)


@dataclass(frozen=True)
class Counted:
    """How many rows of a file are meant, and where they are."""

    path: str
    rows: int
    first_us: int
    last_us: int


class Reading:
    """A database that holds nothing and reads files. Not for more than one thread at a time.

    Args:
        folder: Of the archive.
        selection: What is meant.
    """

    def __init__(self, folder: Folder, selection: Selection) -> None:
        self._folder = folder
        self._selection = selection
        self._database: Any = duckdb.connect(":memory:")
        # Rows of a file are read in their order.
        self._database.execute("set preserve_insertion_order = true")

    def close(self) -> None:
        """Forget what was read."""
        self._database.close()

    def counts(self, files: Sequence[DataFile]) -> list[Counted]:
        """Return how many rows of files are meant; those of none are left out.

        Raises:
            OptionError: A condition or expression is no SQL that can be run over the columns.
        """
        if not files:
            return []
        by_uri = {self._folder.uri_of(one.path): one.path for one in files}
        self._check(next(iter(by_uri)))
        with _told():
            found = self._rows(
                "filename, count(*), epoch_us(min(stored_time)), epoch_us(max(stored_time))",
                list(by_uri),
                "group by filename",
            ).fetchall()
        return [Counted(by_uri[uri], *rest) for uri, *rest in found]

    def offsets(self, files: Sequence[DataFile]) -> list[tuple[int, int]]:
        """Return (queue, offset) of all rows that are meant, in order."""
        if not files:
            return []
        uris = [self._folder.uri_of(one.path) for one in files]
        self._check(uris[0])
        with _told():
            found = self._rows('queue, "offset"', uris, 'order by queue, "offset"').fetchall()
        return [(queue, offset) for queue, offset in found]

    def rows(self, path: str, start: int, stop: int) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a file that are meant, with offsets ``[start, stop)``, in order.

        The columns are ``offset``, and those that a writer of messages takes.
        """
        chosen = ['"offset"', "queue", *(self._sent(name) for name in _SENT), self._headers()]
        more = {"start": start, "stop": stop}
        behind = 'and "offset" >= $start and "offset" < $stop'
        with _told():
            found = self._rows(", ".join(chosen), [self._folder.uri_of(path)], behind, more)
            made = getattr(found, "to_arrow_reader", None) or found.fetch_record_batch
            yield from made(_ROWS)

    def _sent(self, name: str) -> str:
        expression = self._selection.sets.get(name)
        kind = "" if name == "body" else "::varchar"
        return f'({expression or name}){kind} as "{_SENT[name]}"'

    def _headers(self) -> str:
        headers = f"coalesce({self._selection.sets.get('headers') or 'headers'}, {_NO_HEADERS})"
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
        if one.where:
            conditions.append(f"({one.where}\n)")
        if "$mark" in chosen:
            given["mark"] = one.mark
        asked = (
            f"select {chosen} from (select *, $topic as topic, try(decode(body)) as text "  # noqa: S608
            f"from read_parquet($files, filename = true)) where {' and '.join(conditions)} {behind}"
        )
        return self._database.sql(asked, params=given)

    def _check(self, uri: str) -> None:
        """See whether what the user wrote can be run.

        Raises:
            OptionError: Naming the option.
        """
        one = self._selection
        told = [("--where", one.where)] if one.where else []
        told += [(f"--set {name}", expression) for name, expression in one.sets.items()]
        for option, expression in told:
            kind = "::boolean" if option == "--where" else ""
            try:
                self._database.sql(
                    f"select ({expression}\n){kind} from (select *, $topic as topic, "  # noqa: S608
                    "try(decode(body)) as text from read_parquet($files, filename = true)) limit 0",
                    params={"files": [uri], "topic": one.topic},
                ).fetchall()
            except duckdb.Error as error:
                said = " ".join(str(error).partition("LINE")[0].split())
                raise OptionError(f"{option} {expression!r}: {said}") from None


@contextmanager
def _told() -> Iterator[None]:
    """Say what goes wrong with a row.

    Raises:
        OptionError: What the user wrote cannot be worked out for it.
        TableError: Its file cannot be read: it was compacted or erased meanwhile, and removed.
    """
    try:
        yield
    except duckdb.IOException as error:
        said = " ".join(str(error).split())
        raise TableError(f"the archive is not as it was ({said}); do it again") from None
    except (duckdb.Error, pa.ArrowException) as error:
        said = " ".join(str(error).partition("LINE")[0].split())
        raise OptionError(f"--where and --set: {said}") from None
