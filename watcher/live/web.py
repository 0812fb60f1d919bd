"""Serves the live view to browsers that know a token: textual-serve on the loopback."""

from __future__ import annotations

import asyncio
import hmac
import logging
import secrets
import signal
import socket
from collections.abc import Awaitable, Callable

from aiohttp import web
from aiohttp.typedefs import Middleware
from textual_serve.server import Server

from watcher.sockets import listening, url

logger = logging.getLogger("watcher")

_COOKIE = "watcher-live"
# The page needs no more, and nothing from other servers.
_POLICY = (
    "default-src 'self'; script-src 'self' 'unsafe-inline'; style-src 'self' 'unsafe-inline'; "
    "img-src 'self' data:; connect-src 'self' ws: wss:"
)
_Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


def serve(command: str, address: str) -> None:
    """Serves the command's view until Ctrl-C or SIGTERM. Raises UsageError if it can't listen."""
    with listening(address, "live_web") as made:
        asyncio.run(_serve(_TokenServer(command, made), made))


async def _serve(server: _TokenServer, made: socket.socket) -> None:
    ended = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        asyncio.get_running_loop().add_signal_handler(number, ended.set)
    runner = web.AppRunner(await server.guarded())
    await runner.setup()
    try:
        await web.SockSite(runner, made, shutdown_timeout=2).start()
        logger.info(f"Live at {server.url} (Ctrl-C ends it)")
        await ended.wait()
    finally:
        await runner.cleanup()


class _TokenServer(Server):
    """Serves requests with the URL's token, and later ones with the cookie that it set."""

    def __init__(self, command: str, made: socket.socket) -> None:
        host, port = made.getsockname()[:2]
        super().__init__(command, host, port, title="watcher", public_url=url(made))
        self._token = secrets.token_urlsafe(24)

    async def on_startup(self, app: web.Application) -> None:
        """Prints nothing: the URL is logged once the server listens."""

    @property
    def url(self) -> str:
        """The URL to open, with the token."""
        return f"{self.public_url}/?token={self._token}"

    async def guarded(self) -> web.Application:
        """Returns the application behind the check of the token."""
        app = await self._make_app()
        app.middlewares.append(self._guard)
        return app

    @property
    def _guard(self) -> Middleware:
        @web.middleware
        async def guard(request: web.Request, handler: _Handler) -> web.StreamResponse:
            given = request.query.get("token")
            known = given if given is not None else request.cookies.get(_COOKIE, "")
            if not hmac.compare_digest(known.encode(), self._token.encode()):
                raise web.HTTPForbidden(text="Open the whole URL that watcher has printed.\n")
            answer = await handler(request)
            if not answer.prepared:
                answer.headers["Content-Security-Policy"] = _POLICY
                answer.headers["Referrer-Policy"] = "no-referrer"
                if given is not None:
                    answer.set_cookie(_COOKIE, self._token, httponly=True, samesite="Strict")
            return answer

        return guard
