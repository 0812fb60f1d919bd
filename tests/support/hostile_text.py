"""Text that takes over a terminal where it is written as it is, and what finds it there."""

from __future__ import annotations

import re

# A title, colours that hide, a screen's end, C1's CSI and OSC, DEL, a bell, backspaces, another
# line, the marks that turn the direction, and what `style` itself paints with.
HOSTILE = (
    "\x1b]0;owned\x07\x1b[8mhidden\x1b[2J\x9b31m\x9d0;owned\x9c\x7f\x07\x08\x08\r\nINSERT spoofed"
    "\u202egnp.exe\u2066x\u2069\u2028\x1b[31mred"
)
_STEERS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")
# What we write ourselves: colours and marks, and the status line's.
_OURS = re.compile("\x1b\\[(?:0|1|2|7|27|3[1-7]|9[0-7])m|\r\x1b\\[2K")


def refuse_steering(written: str) -> None:
    """Fail where something in it would steer a terminal, or fake a line of ours."""
    left = _OURS.sub("", written)
    found = _STEERS.search(left)
    assert not found, ascii(left[found.start() - 60 :][:120])
    assert "\x1b[31mred" not in written
    assert not re.search("^INSERT spoofed", left, re.MULTILINE)
