"""Where checkpoints are kept: files, DynamoDB with a lease, or an object of the caller's."""
