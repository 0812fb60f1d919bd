"""Formats a change for display and for programs: escapes, colours, times, plain JSON."""
