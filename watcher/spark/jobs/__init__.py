"""Jobs on a stream of changes, each a function here and a command of the same name."""

from watcher.spark.jobs.archive import archive
from watcher.spark.jobs.metrics import metrics
from watcher.spark.jobs.observe import observe
from watcher.spark.jobs.query import query
from watcher.spark.jobs.replicate import replicate

__all__ = ["archive", "metrics", "observe", "query", "replicate"]
