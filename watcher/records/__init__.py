"""Records: boto3's dict for one change, pages of them, their comparison and their filters."""
