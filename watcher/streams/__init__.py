"""The core: reads a stream completely, without I/O; every engine is an executor of it."""
