"""Where checkpoints are kept: a file, DynamoDB with a lease, or an object of the caller's."""
