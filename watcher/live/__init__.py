"""The live view of a watch, in a terminal or a browser, on Textual (an extra)."""
