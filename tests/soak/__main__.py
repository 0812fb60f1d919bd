"""`scripts/soak --hours 8`: hours of rotations, faults and kills, then the verdict."""

import argparse
import random
import sys
from pathlib import Path

from tests.soak.soak import Outcome, Soak


def main(arguments: list[str] | None = None) -> int:
    """Run it, print what was done and the verdict; 1 on any violation. Ctrl-C ends it early."""
    parser = argparse.ArgumentParser(prog="scripts/soak", description=__doc__)
    parser.add_argument("--hours", type=float, default=8.0, help="default 8; 0.33 is 20 minutes")
    parser.add_argument("--rate", type=int, default=100, metavar="N", help="changes a second")
    parser.add_argument("--seed", type=int, help="default by chance")
    options = parser.parse_args(arguments)
    seed = random.SystemRandom().randrange(1_000_000) if options.seed is None else options.seed
    folder = Path("build/soak", str(seed))
    print(f"seed {seed}, {options.hours:g} h; files in {folder}", flush=True)
    outcome = Soak(options.hours * 3600, options.rate, seed, folder.resolve()).run()
    report(outcome)
    return 0 if outcome.is_good else 1


def report(outcome: Outcome) -> None:
    """What was done, and what came of it."""
    for title, counts in (("done", outcome.done), ("verdict, of changes", outcome.faults)):
        print(f"\n{title:36} {'times':>8}")
        for what, count in sorted(counts.items(), key=lambda pair: -pair[1]):
            print(f"{what:36} {count:8}")
    print(f"{'written':36} {outcome.written:8}")
    print(f"\n{'what it took':36} {'median':>8} {'an hour':>8} {'rise':>8}")
    for each in outcome.growths:
        bad = "  TOO MUCH" if each.too_much else ""
        figures = f"{each.median:8.1f} {each.an_hour:+8.2f} {each.rise:+8.2f}"
        print(f"{each.name:36} {figures}{bad}")
    if not outcome.growths:
        print("too short to judge")
    for complaint in outcome.complaints[:20]:
        print(f"BAD: {complaint}")


if __name__ == "__main__":
    sys.exit(main())
