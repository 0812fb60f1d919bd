"""Moments for tests."""

from datetime import UTC, datetime

NOON = datetime(2026, 11, 21, 12, tzinfo=UTC)
