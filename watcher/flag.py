"""What the command line says of a function's parameter: the annotation that makes it an option."""

from typing import NamedTuple


class Flag(NamedTuple):
    """What the command line says of a parameter: its value's name and its help."""

    metavar: str | None
    help: str
    name: str | None = None
    """The flag, where it is not the parameter's own name."""
    group: str | None = None
    """The page of `--help` that it stands on; None leaves it to the command."""
    values: tuple[str, ...] = ()
    """What a TAB offers; those that end in a colon take something behind it."""
