"""Small wrong edits of the core, each of which has to be caught."""


def show_all(jobs: int, *, quick: bool) -> int:
    return 0
