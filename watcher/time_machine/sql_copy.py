"""A table of a SQL database as a copy to be compared with its table; through SQLAlchemy."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime

import sqlalchemy
from sqlalchemy import exc

from watcher.aws.model import WireItem
from watcher.errors import UsageError, without_passwords
from watcher.time_machine.copied_items import Form, plain_value
from watcher.time_machine.copies import AttributeNames, Copy, CopyPosition

_ROWS_AT_ONCE = 500


class SqlCopy:
    """A table, or a view, by its URL: `postgresql+psycopg://user@host/shop?table=orders`.

    `names` are the columns of attributes that have another name there. Raises UsageError.
    """

    form = Form.TEXT

    def __init__(self, url: str, names: Mapping[str, str], at: datetime | None) -> None:
        self._given = url, names, at
        with _readable(url):
            parsed = sqlalchemy.make_url(url)
            table, schema = (parsed.query.get(name) for name in ("table", "schema"))
            if not isinstance(table, str) or isinstance(schema, tuple):
                raise UsageError("give ?table=NAME at its end", "with_", without_passwords(url))
            self._table = table
            self._schema = schema
            self._engine = sqlalchemy.create_engine(
                parsed.difference_update_query(("table", "schema")), poolclass=sqlalchemy.NullPool
            )
        place = parsed.set(query={}).render_as_string(hide_password=True)
        self.label = f"table {table} of {place}"
        self.position = CopyPosition(at=at)
        self.columns: frozenset[str] | None = None
        self._names = AttributeNames(names)

    def __reduce__(self) -> tuple[Callable[..., SqlCopy], tuple[object, ...]]:
        """Connects again in another process."""
        return SqlCopy, self._given

    def items(self) -> Iterator[WireItem]:
        """Yields its rows, all of one statement. Raises UsageError."""
        with _readable(self.label), self._engine.connect() as connection:
            columns = sqlalchemy.inspect(connection).get_columns(self._table, self._schema)
            names = [each["name"] for each in columns]
            self.columns = frozenset(self._names.attributes(dict.fromkeys(names)))
            # A driver would make floats of the numbers in JSON, which have more digits.
            wanted = [
                sqlalchemy.cast(sqlalchemy.column(each["name"]), sqlalchemy.Text)
                if isinstance(each["type"], sqlalchemy.JSON)
                else sqlalchemy.column(each["name"])
                for each in columns
            ]
            query = sqlalchemy.select(*wanted).select_from(
                sqlalchemy.table(self._table, schema=self._schema)
            )
            streamed = connection.execution_options(yield_per=_ROWS_AT_ONCE)
            for row in streamed.execute(query):
                values = self._names.attributes(dict(zip(names, row, strict=True)))
                yield {name: plain_value(value) for name, value in values.items()}

    def as_copied(self, item: WireItem) -> WireItem:
        """Returns the item."""
        return item

    def parts(self, count: int) -> Sequence[Copy]:
        """Returns all of it, as only one statement reads one moment."""
        return [self]


@contextmanager
def _readable(name: str) -> Iterator[None]:
    """Raises UsageError for what the database, or its driver, refuses."""
    try:
        yield
    except (exc.SQLAlchemyError, ImportError, ValueError) as error:
        text = str(getattr(error, "orig", None) or error) or type(error).__name__
        reason = without_passwords(text.strip().splitlines()[0])
        raise UsageError(f"can't read {without_passwords(name)}: {reason}", "with_") from None
