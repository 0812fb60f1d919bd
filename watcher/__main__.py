"""`python -m watcher`."""

import sys

try:
    import signal

    # Ctrl-C while it is still importing ends it without a traceback.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    from watcher.cli import main
except KeyboardInterrupt:
    sys.exit(130)

sys.exit(main())
