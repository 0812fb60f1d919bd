"""How a stream is read completely: pure, and every engine's. Imports `record`, `service`."""
