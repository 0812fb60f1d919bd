"""How long to wait after failures in a row, and which of them are worth a line to the user."""

# Doubling stops here, before it overflows: a network may be gone for days.
_DOUBLINGS = 10
# A few failures are the service's everyday life.
_UNSAID = 4


def backoff(failures: int, first: float = 0.1, most: float = 10.0) -> float:
    """Seconds to wait after so many failures in a row: twice as long each time, up to `most`."""
    return min(first * 2.0 ** min(failures - 1, _DOUBLINGS), most)


def worth_logging(failures: int, unsaid: int = _UNSAID) -> bool:
    """Whether to tell of this failure: at ever longer distances, from the first that counts on."""
    return failures >= unsaid and failures.bit_count() == 1
