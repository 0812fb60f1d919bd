"""Runs commands (JSON lists of arguments, one a line on stdin) on one Spark, JSON answers out."""

import contextlib
import io
import json
import os
import sys

from watcher import cli
from watcher.spark import session


def run(arguments: list[str]) -> tuple[int, str, str]:
    """A command's status, stdout and stderr."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        status = cli.main(arguments)
    return status, out.getvalue(), err.getvalue()


if __name__ == "__main__":
    # A start takes 10 seconds: the next command takes what is there.
    end, session.stop = session.stop, lambda spark: None
    for line in sys.stdin:
        print(json.dumps(run(json.loads(line))), flush=True)
    end(session.start())
    os._exit(0)
