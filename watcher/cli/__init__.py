"""The command line: its commands, options, help, completion and output."""

import sys

from watcher.version import LINE, NO_WINDOWS

if sys.platform == "win32":
    # Before anything is imported that Windows lacks.
    sys.stderr.write(f"error: {NO_WINDOWS}\n")
    sys.exit(2)


def main(argv: list[str] | None = None) -> int:
    """Runs a command line; returns the exit status: 0, or that of the error (see errors.py)."""
    words = sys.argv[1:] if argv is None else argv
    if words in (["--version"], ["-V"]) and sys.stdout:
        # A script that asks for it does not wait for all the rest to be imported.
        try:
            print(LINE, flush=True)
        except OSError:
            pass  # as for every command
        else:
            return 0
    from watcher.cli import program

    return program.run(words)
