"""A view of a watch to sit in front of, on Textual; of what is here, only the cli imports."""
