"""What a mutant is."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple


class Mutant(NamedTuple):
    """An edit: in a file of the package, this text (which is there once) becomes another."""

    what: str
    file: str
    before: str
    after: str
    engine: str = ""
    """The engine that is to catch it; empty: any."""
    given: Mapping[str, Any] = MappingProxyType({})
    """What has to be the case for it to matter, where seeds seldom say so."""
