"""The core: reads a stream completely, through the calls of a service that an engine gives it."""
