"""What the command line says of a function's parameter: the annotation that makes it an option."""

from typing import NamedTuple


class Flag(NamedTuple):
    """What the command line says of a parameter: its value's name and its help."""

    metavar: str | None
    help: str
    name: str | None = None
    """The flag, where it is not the parameter's own name."""
