"""Shows a change to people and programs: escapes, colours, times, plain JSON."""
