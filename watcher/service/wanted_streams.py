"""Which streams a user means: by names, ARNs, globs and tags, or all of a region."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Callable, Iterable, Mapping

import msgspec

from watcher.errors import StreamError, UsageError
from watcher.service.model import StreamName
from watcher.service.names import table_name

_GLOB = re.compile(r"[*?\[]")

Tags = Mapping[str, str]


class WantedStreams(msgspec.Struct, frozen=True, kw_only=True):
    """What a user has named. Tags narrow down what globs match, or all there is."""

    names: tuple[str, ...] = ()
    """Streams and tables by name or ARN, each of them meant to be there."""
    globs: tuple[str, ...] = ()
    """Of tables' names; "*" where all are meant."""
    exclude: tuple[str, ...] = ()
    tags: tuple[tuple[str, frozenset[str]], ...] = ()
    """Each tag has to be there, with one of its values; with any where there are none."""

    @classmethod
    def of(
        cls,
        texts: str | Iterable[str],
        everything: bool = False,
        tags: Iterable[str] | None = None,
        exclude: Iterable[str] | None = None,
    ) -> WantedStreams:
        """From what is given to `watch()`. Raises UsageError where it means nothing."""
        texts = [texts] if isinstance(texts, str) else list(dict.fromkeys(texts))
        tags, exclude = list(tags or ()), list(exclude or ())
        globs = [text for text in texts if is_glob(text) and not text.startswith("arn:")]
        names = [text for text in texts if text not in globs]
        if everything or (tags and not texts):
            globs = ["*"]
        if not (names or globs):
            raise UsageError("give a stream: its ARN, a table, a glob like 'shop-*', or --all")
        accepted: dict[str, set[str]] = {}
        for text in tags:
            name, equals, value = text.partition("=")
            if not name:
                raise UsageError("give NAME=VALUE, or NAME", "tag", text)
            accepted.setdefault(name, set()).update([value] if equals else ())
        return cls(
            names=tuple(name for name in names if not _any(exclude, table_name(name))),
            globs=tuple(globs),
            exclude=tuple(exclude),
            tags=tuple((name, frozenset(values)) for name, values in accepted.items()),
        )

    @property
    def are_several(self) -> bool:
        """Whether it can be more than one stream."""
        return bool(self.globs) or len(self.names) > 1

    def newest(
        self, rows: Iterable[StreamName], tags_of: Callable[[str], Tags]
    ) -> dict[str, StreamName]:
        """Table → its newest stream, of the streams listed whose tables match.

        `tags_of` tells a table's tags by its ARN, and is asked only for those whose names match.
        """
        found: dict[str, StreamName] = {}
        for row in rows:
            if not _any(self.globs, row.table) or _any(self.exclude, row.table):
                continue
            if row.table not in found or found[row.table].label < row.label:
                found[row.table] = row
        return {name: row for name, row in found.items() if self._has_tags(row, tags_of)}

    def unmatched(self, rows: Iterable[StreamName]) -> list[str]:
        """The globs that match the table of none of these streams."""
        tables = {row.table for row in rows}
        return [glob for glob in self.globs if not fnmatch.filter(tables, glob)]

    def refuse_without_match(self, rows: Iterable[StreamName]) -> None:
        """Raise StreamError where a glob has no match."""
        if unmatched := self.unmatched(rows):
            raise nothing_matches(unmatched)

    def _has_tags(self, row: StreamName, tags_of: Callable[[str], Tags]) -> bool:
        if not self.tags:
            return True
        tags = tags_of(row.arn.partition("/stream/")[0])
        return all(
            name in tags and (not values or tags[name] in values) for name, values in self.tags
        )


def is_glob(text: str) -> bool:
    """Whether it names by what names look like."""
    return _GLOB.search(text) is not None


def nothing_matches(globs: Iterable[str]) -> StreamError:
    """What is wrong where globs have no match."""
    shown = " or ".join(map(repr, globs))
    return StreamError(f"no table with a stream matches {shown}; see: python -m watcher streams")


def _any(globs: Iterable[str], table: str) -> bool:
    return any(fnmatch.fnmatchcase(table, glob) for glob in globs)
