"""Jobs on a stream of changes, each a function here and a command of the same name."""

from watcher.spark.jobs.archive import archive
from watcher.spark.jobs.mirror import mirror
from watcher.spark.jobs.query import query
from watcher.spark.jobs.replicate import replicate
from watcher.spark.jobs.watch import watch

__all__ = ["archive", "mirror", "query", "replicate", "watch"]
