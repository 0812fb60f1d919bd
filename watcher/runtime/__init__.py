"""THE loop of a watch and its worker processes, a process for each shard."""
