"""How a change is shown: escapes, colours, times, plain JSON. Imports `record`."""
