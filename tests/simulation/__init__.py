"""Deterministic simulation: the real core on a virtual clock, everything else played by a seed.

`scripts/simulate --seeds 2000` runs as many days in the life of a watch; `--seed N --trace` shows
one of them, step by step. Nothing here sleeps, forks or opens a socket; the only thing borrowed
from the machine are pipes, because a pipe's habits are what the queue is about.
"""
