"""What a mutant is."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from tests.simulation.mutations.edits import Change


class Mutant(NamedTuple):
    """A wrong edit of a function that is found by its name; see `edits`."""

    what: str
    function: str
    change: Change
    engine: str = ""
    """The engine that is to catch it; empty: any."""
    given: Mapping[str, Any] = MappingProxyType({})
    """What has to be the case for it to matter, where seeds seldom say so."""
