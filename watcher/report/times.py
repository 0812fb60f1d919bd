"""Times as a report shows them: in UTC."""

from datetime import UTC, datetime


def utc(seconds: float) -> datetime:
    """Epoch seconds as a time."""
    return datetime.fromtimestamp(seconds, UTC)


def minute(seconds: float) -> str:
    """`2026-11-21 08:00`"""
    return f"{utc(seconds):%Y-%m-%d %H:%M}"


def second(seconds: float) -> str:
    """`2026-11-21 08:00:00`"""
    return f"{utc(seconds):%Y-%m-%d %H:%M:%S}"
