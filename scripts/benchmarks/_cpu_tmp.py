import sys, statistics
from pathlib import Path
from scripts.benchmarks import commands
from scripts.benchmarks.replay import Replay, Scenario, RECORDS
from scripts.benchmarks import throughput as t

trees = {"base": Path("/tmp/base"), "new": Path("/work/wt/service")}
extra = sys.argv[2:]


def one(tree, replay, opts):
    commands.ROOT = trees[tree]
    used = [
        t._run(replay, t._watching(p * RECORDS, *opts), Scenario(1, p))[0].cpu for p in (40, 200)
    ]
    return (used[1] - used[0]) / 160 * 1000


import contextlib

import contextlib

replay = Replay()
with contextlib.closing(type("C", (), {"close": staticmethod(replay.stop)})()):
    res = {k: [] for k in trees}
    for i in range(int(sys.argv[1])):
        for k in ("base", "new") if i % 2 else ("new", "base"):
            res[k].append(one(k, replay, ["--read-keys", *extra]))
        print({k: round(v[-1], 2) for k, v in res.items()}, flush=True)
r = [n / b for n, b in zip(res["new"], res["base"])]
print(
    extra,
    {k: round(statistics.median(v), 2) for k, v in res.items()},
    "ratio",
    round(statistics.median(r), 3),
    [round(x, 2) for x in r],
)
