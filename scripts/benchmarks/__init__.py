"""The yardstick: how fast watcher is, beside boto3's plain loop in the same run."""
