"""`python -m watcher`."""

import os
import sys

import watcher

# `python -m` lets a file of the working folder stand in for any module that is imported from here
# on: not in a folder that holds other people's files. A checkout is at home in its own.
if not sys.flags.safe_path and os.path.dirname(watcher.__path__[0]) != sys.path[0] == os.getcwd():
    del sys.path[0]

import signal

signal.signal(signal.SIGINT, signal.SIG_DFL)  # Ctrl-C while it is still importing ends it silently
from watcher.cli import main  # noqa: E402

sys.exit(main())
