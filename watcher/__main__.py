"""`python -m watcher`."""

import signal
import sys

signal.signal(signal.SIGINT, signal.SIG_DFL)  # Ctrl-C while it is still importing ends it silently
from watcher.cli import main  # noqa: E402

sys.exit(main())
