"""`python -m watcher`."""

import sys

try:
    from watcher.cli import main

    sys.exit(main())
except KeyboardInterrupt:  # while it is still importing
    sys.exit(130)
