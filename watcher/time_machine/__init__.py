"""What was it, who changed it, put it back: items as they were. Imports `reading`."""
