"""Runs a simulator as a process of its own: python -m tests.simulator --port-file FILE."""

import argparse
import contextlib
import json
import os
import signal
import sys
import threading
from pathlib import Path

from .control import Simulator
from .faults import Faults


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.simulator", description=__doc__)
    parser.add_argument("--port", type=int, default=0, help="default: a free one")
    parser.add_argument("--port-file", type=Path, help="write the port there once it listens")
    parser.add_argument("--settings", type=json.loads, default={}, help="Simulator's, as JSON")
    parser.add_argument("--guarded", action="store_true", help="end when standard input ends")
    options = parser.parse_args()
    settings = dict(options.settings)
    faults = Faults.from_json(settings.pop("faults", {}))
    settings.setdefault("port", options.port)
    with Simulator(faults=faults, **settings) as simulator:
        print(simulator.endpoint, flush=True)
        if options.port_file:
            aside = options.port_file.with_suffix(".new")
            aside.write_text(simulator.endpoint.rpartition(":")[2])
            os.replace(aside, options.port_file)
        if options.guarded:
            signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the test, not for us
            sys.stdin.read()
        else:
            threading.Event().wait()


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        main()
