"""Records to handlers: one after the other or several shards at once, batches, Lambda, failures."""
