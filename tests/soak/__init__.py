"""The soak: the real program for hours, through rotations, faults and kills."""
