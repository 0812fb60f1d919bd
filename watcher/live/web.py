"""Serves the live view to browsers that know a token: textual-serve on the loopback."""

from __future__ import annotations

import asyncio
import hmac
import html
import ipaddress
import logging
import re
import secrets
import signal
import socket
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress

import aiohttp_jinja2
import jinja2
from aiohttp import web
from aiohttp.typedefs import Middleware
from textual_serve.app_service import AppService
from textual_serve.server import Server

from watcher.live.watch_process import DESCRIPTOR, SharedWatch, Viewer, WatchProcess
from watcher.observability.watch_stats import Totals
from watcher.sockets import listening, url

logger = logging.getLogger("watcher")

VIEWERS_MAX = 8
"""Each has a program of some 60 MB."""
_FULL = f"{VIEWERS_MAX} browsers look at this watch already: close one, and load the page again.\n"
# The page needs no more, and nothing from other servers.
_POLICY = (
    "default-src 'self'; script-src 'self' 'unsafe-inline'; style-src 'self' 'unsafe-inline'; "
    "img-src 'self' data:; connect-src 'self' {scheme}://{host}; frame-ancestors 'none'; "
    "base-uri 'none'; form-action 'none'"
)
# The template loads a font from another server, which the policy refuses. It has no title, is as
# wide as a desktop on a phone, and gets no keys before a click.
_FONT = re.compile(r"<link[^>]*fonts\.googleapis[^>]*>")
_HEAD = """<title>{title} - watcher</title>
    <meta name="viewport" content="width=device-width, initial-scale=1">
    <script>
      addEventListener("DOMContentLoaded", () => {{
        const focus = () => {{
          const keys = document.querySelector(".xterm-helper-textarea");
          if (keys) keys.focus(); else setTimeout(focus, 50);
        }};
        focus();
      }});
    </script>"""
_Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


def serve(watch: WatchProcess, words: Sequence[str], address: str, *, title: str) -> Totals | None:
    """Serves a watch until Ctrl-C or SIGTERM; `words` are the program that shows it.

    Raises UsageError if it can't listen, and the watch's error.
    """
    try:
        with listening(address, "live_web") as made:
            return asyncio.run(_serve(watch, words, made, title))
    finally:
        watch.close()


async def _serve(
    watch: WatchProcess, words: Sequence[str], made: socket.socket, title: str
) -> Totals | None:
    ended, loop = asyncio.Event(), asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        loop.add_signal_handler(number, ended.set)
    shared = SharedWatch(watch, lambda: loop.call_soon_threadsafe(ended.set))
    try:
        server = _ViewServer(words, shared, made, title)
        runner = web.AppRunner(server.application())
        await runner.setup()
        try:
            await web.SockSite(runner, made, shutdown_timeout=2).start()
            logger.info(f"Live at {server.url} (Ctrl-C ends it)")
            await ended.wait()
        finally:
            await runner.cleanup()
    finally:
        failed = shared.error
        await asyncio.to_thread(shared.close)
    if failed is not None:
        raise failed
    return shared.totals


class _ViewServer(Server):
    """Serves the page to requests with its URL's token, and the view to that page.

    There is no cookie: a browser sends one to every port of a host, so to others' servers, too. The
    page has the path of its WebSocket, which is a secret as well.
    """

    def __init__(
        self, words: Sequence[str], shared: SharedWatch, made: socket.socket, title: str
    ) -> None:
        host, port = made.getsockname()[:2]
        super().__init__("", host, port, title=title, public_url=url(made))
        self._words = words
        self._shared = shared
        self._is_local = ipaddress.ip_address(host).is_loopback
        self._token, self._path = secrets.token_urlsafe(24), f"/ws/{secrets.token_urlsafe(24)}"
        self._viewers = 0

    @property
    def url(self) -> str:
        """The URL to open, with the token."""
        return f"{self.public_url}/?token={self._token}"

    def application(self) -> web.Application:
        """Returns what answers requests."""
        app = web.Application(middlewares=[self._guard])
        aiohttp_jinja2.setup(app, loader=jinja2.FileSystemLoader(self.templates_path))
        app.add_routes(
            [
                web.get("/", self._page),
                web.get(self._path, self.handle_websocket),
                web.static("/static", self.statics_path),
            ]
        )
        return app

    @property
    def _guard(self) -> Middleware:
        @web.middleware
        async def guard(request: web.Request, handler: _Handler) -> web.StreamResponse:
            self._refuse_others(request)
            answer = await handler(request)
            if not answer.prepared:
                policy = _POLICY.format(host=request.host, scheme=_scheme(request))
                answer.headers["Content-Security-Policy"] = policy
                answer.headers["Referrer-Policy"] = "no-referrer"
                answer.headers["X-Content-Type-Options"] = "nosniff"
                answer.headers["Cache-Control"] = "no-store"
            return answer

        return guard

    def _refuse_others(self, request: web.Request) -> None:
        """Refuses a page of another server: also one whose name was made to point here."""
        origin = request.headers.get("Origin")
        is_own = origin in (f"http://{request.host}", f"https://{request.host}")
        is_other = origin is not None and not is_own
        if is_other or not self._is_ours(request.url.host or ""):
            raise web.HTTPForbidden(text="This page is for its own server's address alone.\n")
        if request.path == self._path and origin is None:
            raise web.HTTPForbidden(text="A browser says whose page it shows.\n")

    def _is_ours(self, name: str) -> bool:
        """True for a host name that other servers can't point here."""
        if name == "localhost":
            return True
        with suppress(ValueError):
            address = ipaddress.ip_address(name)
            return address.is_loopback or not self._is_local
        return not self._is_local and name in (socket.gethostname(), socket.getfqdn())

    async def _page(self, request: web.Request) -> web.Response:
        known = request.query.get("token", "").encode()
        if not hmac.compare_digest(known, self._token.encode()):
            raise web.HTTPForbidden(text="Open the whole URL that watcher has printed.\n")
        self._refuse_when_full()
        context = {
            "font_size": 16,
            "app_websocket_url": f"{_scheme(request)}://{request.host}{self._path}",
            "config": {"static": {"url": "/static/"}},
            "application": {"name": self.title},
        }
        page = aiohttp_jinja2.render_string("app_index.html", request, context)
        head = _HEAD.format(title=html.escape(self.title))
        return web.Response(text=_FONT.sub(head, page, 1), content_type="text/html")

    def _refuse_when_full(self) -> None:
        if self._viewers >= VIEWERS_MAX:
            raise web.HTTPServiceUnavailable(text=_FULL)

    async def handle_websocket(self, request: web.Request) -> web.WebSocketResponse:
        """Runs a viewer's program as long as its browser is there."""
        self._refuse_when_full()
        self._viewers += 1
        try:
            return await self._show(request)
        finally:
            self._viewers -= 1

    async def _show(self, request: web.Request) -> web.WebSocketResponse:
        socket, loop = web.WebSocketResponse(heartbeat=15), asyncio.get_running_loop()
        await socket.prepare(request)
        viewer = self._shared.join(
            lambda: loop.call_soon_threadsafe(loop.create_task, socket.close())
        )
        service = _ViewerService(self._words, viewer, socket, self)
        try:
            await service.start(_cells(request, "width"), _cells(request, "height"))
            await self._process_messages(socket, service)
        except asyncio.CancelledError:
            await socket.close()
        finally:
            await service.stop()
            viewer.close()
        return socket


def _scheme(request: web.Request) -> str:
    """Returns the WebSocket's scheme: a proxy may have the page's TLS."""
    is_safe = request.headers.get("X-Forwarded-Proto", request.scheme) == "https"
    return "wss" if is_safe else "ws"


def _cells(request: web.Request, name: str) -> int:
    text = request.query.get(name, "")
    return min(int(text), 1000) if text.isdecimal() else 80


class _ViewerService(AppService):
    """A viewer's program, which gets the shared watch's messages through a pipe."""

    def __init__(
        self, words: Sequence[str], viewer: Viewer, socket: web.WebSocketResponse, server: Server
    ) -> None:
        super().__init__(
            "",
            write_bytes=socket.send_bytes,
            write_str=socket.send_str,
            close=socket.close,  # type: ignore[arg-type]
            download_manager=server.download_manager,
        )
        self._words = words
        self._viewer = viewer

    async def _open_app_process(
        self, width: int = 80, height: int = 24
    ) -> asyncio.subprocess.Process:
        pipe = asyncio.subprocess.PIPE
        descriptor = self._viewer.receiving.fileno()
        # In a session of its own: a terminal's Ctrl-C is for the server, which then ends it.
        self._process = await asyncio.create_subprocess_exec(
            *self._words,
            stdin=pipe,
            stdout=pipe,
            stderr=pipe,
            pass_fds=[descriptor],
            start_new_session=True,
            env={**self._build_environment(width, height), DESCRIPTOR: str(descriptor)},
        )
        self._viewer.receiving.close()
        self._stdin = self._process.stdin
        return self._process
