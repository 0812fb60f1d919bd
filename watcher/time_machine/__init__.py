"""The time machine: items as they were, who changed them, and how to put them back."""
