"""Reads streams in this process: merged record by record, or a backlog page by page."""
