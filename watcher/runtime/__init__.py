"""Processes on one machine: THE loop, a process a shard, checkpoints. Imports all below it."""
