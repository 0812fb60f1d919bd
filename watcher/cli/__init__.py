"""The command line: its commands, options, help, completion and output."""

import sys

from watcher.version import NO_WINDOWS

if sys.platform == "win32":
    # Before anything is imported that Windows lacks.
    sys.stderr.write(f"error: {NO_WINDOWS}\n")
    sys.exit(2)

from watcher.cli.main import main as main
