"""One change: boto3's record, its page, comparing and choosing. Imports `service`."""
