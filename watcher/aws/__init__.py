"""What AWS says, and how it is asked: calls, errors, the way to an endpoint. Imports `errors`."""
