"""DynamoDB Streams and AWS around it: calls, retries, credentials, errors, ARNs, endpoints."""
