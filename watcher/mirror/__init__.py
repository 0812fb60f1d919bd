"""Mirrors a DynamoDB table as a Delta table: its current items, or every version of them."""
