"""Deterministic simulation: as many days in the life of a watch as there are seeds.

A failure names its seed; `--seed N --trace` shows what happened there, step by step.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import json
import multiprocessing
import os
import signal
import sys
import time
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from tests.simulation.mutants import show_all
from tests.simulation.run import Outcome, play
from tests.simulation.scenario import ENGINES, draw
from tests.simulation.scheduler import Trace

_CHUNK = 20
Given = Mapping[str, Any] | None


def main() -> int:
    """What `scripts/simulate` runs; 1 where a promise was broken."""
    parser = argparse.ArgumentParser(prog="scripts/simulate", description=__doc__)
    parser.add_argument("--seeds", type=int, default=2000, metavar="N", help="how many; 2000")
    parser.add_argument("--first", type=int, default=0, metavar="N", help="the first of them; 0")
    parser.add_argument("--seed", type=int, metavar="N", help="only this one")
    parser.add_argument("--trace", action="store_true", help="show what happened there")
    parser.add_argument(
        "--engine",
        choices=[*ENGINES, "standby"],
        help="whatever the seed says; standby: several watches of one checkpoint",
    )
    parser.add_argument(
        "--given",
        type=json.loads,
        metavar="JSON",
        help="""settings of the scenario whatever the seed says: '{"start": "latest"}'""",
    )
    parser.add_argument(
        "--mutants",
        nargs="?",
        const="",
        metavar="TEXT",
        help="show that it can fail, by wrong edits of the code; only those with this description",
    )
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, metavar="N")
    parser.add_argument("--until-caught", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.mutants is not None:
        return show_all(options.jobs, options.mutants)
    if options.seed is not None:
        return _one(options.seed, options.engine, options.given, trace=options.trace)
    seeds = range(options.first, options.first + options.seeds)
    if options.until_caught:
        return _until_caught(seeds, options.engine, options.given)
    return _many(seeds, options.engine, options.given, options.jobs)


def _one(seed: int, engine: str | None, given: Given, *, trace: bool) -> int:
    told = Trace(keep=True)
    outcome = play(seed, engine, given, told)
    if trace:
        print("\n".join(told.lines))
    if engine != "standby":
        print(draw(seed, engine, given))
    print(f"{outcome.virtual:.0f} virtual seconds in {outcome.cpu:.2f} s; trace {told.digest}")
    _print_complaints([outcome])
    return bool(outcome.complaints)


def _until_caught(seeds: Iterable[int], engine: str | None, given: Given) -> int:
    for seed in seeds:
        outcome = play(seed, engine, given)
        if outcome.complaints:
            print(f"{seed}\t{outcome.complaints[0].check}\t{outcome.complaints[0].text}")
            return 1
    return 0


def _play(job: tuple[int, str | None, Given]) -> Outcome:
    outcome = play(*job)
    if job[0] % 50 == 0:
        gc.collect()
    return outcome


def _ignore_ctrl_c() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def _many(seeds: range, engine: str | None, given: Given, jobs: int) -> int:
    began = time.monotonic()
    gc.disable()  # a run is small, and most of it is gone with its references
    work = [(seed, engine, given) for seed in seeds]
    outcomes: list[Outcome] = []
    # Ctrl-C ends it with what was seen by then.
    with (
        multiprocessing.get_context("fork").Pool(jobs, _ignore_ctrl_c) as pool,
        contextlib.suppress(KeyboardInterrupt),
    ):
        for outcome in pool.imap_unordered(_play, work, _CHUNK):
            outcomes.append(outcome)
            if sys.stderr.isatty():
                print(f"\r{len(outcomes)} of {len(seeds)} seeds", end="", file=sys.stderr)
    failed = [outcome for outcome in outcomes if outcome.complaints]
    _print_tables(outcomes)
    _print_complaints(sorted(failed))
    virtual = sum(outcome.virtual for outcome in outcomes)
    print(
        f"{len(outcomes)} seeds, {virtual / 3600:.0f} virtual hours in "
        f"{time.monotonic() - began:.0f} s: {len(failed)} failed"
    )
    return bool(failed)


def _print_tables(outcomes: list[Outcome]) -> None:
    engines = Counter(outcome.engine for outcome in outcomes)
    injected = sum((outcome.injected for outcome in outcomes), Counter[str]())
    checked = sum((outcome.checked for outcome in outcomes), Counter[str]())
    broken = Counter(outcome.complaints[0].check for outcome in outcomes if outcome.complaints)
    for title, table in (
        ("engines", engines),
        ("injected", injected),
        ("checked", checked),
        ("broken", broken),
    ):
        print(f"{title}:")
        for name, count in sorted(table.items()):
            print(f"  {name:44}{count:10,}")


def _print_complaints(outcomes: list[Outcome]) -> None:
    for outcome in outcomes:
        for check, text in outcome.complaints[:3]:
            print(f"seed {outcome.seed} ({outcome.engine}): {check}: {text}")
        if outcome.complaints:
            engine = f"--engine {outcome.engine} " if outcome.engine == "standby" else ""
            print(f"  again: scripts/simulate {engine}--seed {outcome.seed} --trace")


if __name__ == "__main__":
    sys.exit(main())
