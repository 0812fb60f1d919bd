"""Python imports this as it starts where Spark does it (home.py links it there).

Spark's daemons fork a process for each task. What each of these would import, and collect as
garbage after each task, a daemon has imported before, and frozen.
"""

import contextlib
import gc
import importlib
import sys

# What a task with rows of the source has imported; a worker's environment may lack some of it.
_OF_TASKS = ("pandas", "pyarrow")
_OF_ALL = ("watcher.spark.source", "watcher.spark.tasks", "watcher.spark.planner")

if "pyspark.daemon" in sys.orig_argv:
    for name in (*(_OF_TASKS if sys.orig_argv[-1] == "pyspark.worker" else ()), *_OF_ALL):
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    gc.collect()
    gc.freeze()
