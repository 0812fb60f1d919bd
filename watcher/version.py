"""The version, as every request's User-Agent has it too, and what the package is called."""

__version__ = "0.2.0"
PACKAGE = "dynamodb-watcher"
"""On PyPI `watcher` is somebody else's program; imports and commands are `watcher` all the same."""


def install(extra: str) -> str:
    """The command that brings what an extra of the package needs."""
    return f"pip install '{PACKAGE}[{extra}]'"
