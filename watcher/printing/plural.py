"""Numbers of things, in English."""


def plural(number: int, what: str) -> str:
    """What stands after a number: `change`, `changes`, `processes`, `DATA LOSSES`."""
    if number == 1:
        return what
    return what + {"S": "ES", "s": "es"}.get(what[-1], "s")


def counted(number: int, what: str) -> str:
    """A number of things: `1 change`, `1000 changes`."""
    return f"{number} {plural(number, what)}"


def grouped(number: int, what: str) -> str:
    """The same with its digits in groups: `1,000 changes`."""
    return f"{number:,} {plural(number, what)}"
