"""What a service manager's probes are answered: whether a watch lives, whether it is ready."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from watcher.clock import CLOCK, Clock
from watcher.engine.figures import Snapshot
from watcher.engine.health import LATE_SECONDS
from watcher.engine.pulse import Doing, Pulse, Signs

Application = Callable[[dict[str, Any], Callable[..., Any]], Iterable[bytes]]

_WHAT = {
    Doing.STARTING: "the start",
    Doing.STANDING_BY: "standing by",
    Doing.WATCHING: "the watch's loop",
    Doing.READING_ITEMS: "a read of the table's items",
    Doing.DELIVERING: "a handler",
    Doing.SAVING: "a save of the positions",
}
_ANOTHERS = "another watch has the lease"
_METHODS = "GET, HEAD"
# Whoever looks twice a second, and has not for so long, stood still.
_STILL_SECONDS = 5.0


class Answers(NamedTuple):
    """The lines that say what is wrong; none: all is well."""

    live: list[str]
    """Why a restart may help."""
    ready: list[str]


def judge(snapshot: Snapshot, signs: Signs, now: float) -> Answers:
    """What is wrong with a watch, by its last figures and its signs of life."""
    health, live = snapshot.health, list(snapshot.health.stuck)
    if signs.ending:
        return Answers([], ["the watch is ending"])
    what = _WHAT[signs.doing]
    if signs.doing is Doing.DELIVERING:
        what += f" ({' or '.join(snapshot.observed)})" if snapshot.observed else ""
    if now - signs.tried > LATE_SECONDS:
        live.insert(0, f"{what} has stood for {now - signs.tried:.0f} s")
    if signs.doing is Doing.STANDING_BY:
        return Answers(live, [*live, f"standing by: {health.trouble or _ANOTHERS}"])
    ready = list(live)
    if not live and now - signs.got_on > LATE_SECONDS:
        ready.append(f"{what} is tried again and again, for {now - signs.got_on:.0f} s")
    return Answers(live, [*ready, *health.unready])


class Awake:
    """Since when this process has not stood still, as it does with all of a machine that sleeps.

    `look` is to be called often.
    """

    def __init__(self, clock: Clock = CLOCK) -> None:
        self._clock = clock
        self._looked_at = self._since = clock.monotonic()

    def look(self) -> float:
        """Since when, in monotonic seconds."""
        now = self._clock.monotonic()
        if now - self._looked_at > _STILL_SECONDS:
            self._since = now
        self._looked_at = now
        return self._since


def answering_probes(
    metrics: Application, latest: Callable[[], Snapshot], pulse: Pulse, awake: Awake
) -> Application:
    """An application that answers /livez and /readyz beside /metrics (and /)."""

    def application(environ: dict[str, Any], start: Callable[..., Any]) -> Iterable[bytes]:
        path, method = environ["PATH_INFO"], environ["REQUEST_METHOD"]
        if path in ("/", "/metrics") and method != "HEAD":
            return metrics(environ, start)
        status, text = "200 OK", "ok"
        headers = [("Content-Type", "text/plain; charset=utf-8"), ("Cache-Control", "no-store")]
        if method not in ("GET", "HEAD"):
            status, text = "405 Method Not Allowed", f"use {_METHODS}"
            headers.append(("Allow", _METHODS))
        elif path in ("/livez", "/readyz"):
            since = awake.look()
            live, ready = judge(latest(), pulse.look().not_before(since), time.monotonic())
            if wrong := live if path == "/livez" else ready:
                status, text = "503 Service Unavailable", "\n".join(wrong)
        elif path not in ("/", "/metrics"):
            status, text = "404 Not Found", "there are /metrics, /livez and /readyz"
        body = f"{text}\n".encode()
        start(status, [*headers, ("Content-Length", str(len(body)))])
        return [] if method == "HEAD" else [body]

    return application
