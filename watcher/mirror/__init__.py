"""A table of DynamoDB as a Delta table that keeps itself current, or with every version."""
