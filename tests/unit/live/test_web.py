"""The live view in a real browser: for who has the URL, with nothing loaded from elsewhere."""

import asyncio
import contextlib
import os
import re
import signal
import subprocess
import sys
import tempfile
import urllib.error
import urllib.request
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from urllib.request import Request

import aiohttp
import pytest

from tests.simulator import RemoteSimulator, Simulator
from tests.support import browser
from tests.support.dynamodb_local import MissingPart
from tests.support.program import PATIENCE
from watcher.live.watch_process import DESCRIPTOR
from watcher.live.web import VIEWERS_MAX


@dataclass
class Served:
    """A watch's live view, served."""

    sim: Simulator | RemoteSimulator
    process: subprocess.Popen[str]
    url: str

    @property
    def host(self) -> str:
        return urlsplit(self.url).netloc

    def get(self, path: str = "", **headers: str) -> tuple[int, str]:
        """The status and the text of an answer; the whole URL's without a path."""
        where = f"http://{self.host}{path}" if path else self.url
        try:
            with urllib.request.urlopen(Request(where, headers=headers), timeout=60) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()

    @property
    def socket(self) -> str:
        """What the page opens for its view."""
        _, page = self.get()
        (found,) = re.findall(r'data-session-websocket-url="([^"]+)"', page)
        return str(found)

    def processes(self) -> int:
        """How many it has below it."""
        listed = subprocess.run(
            ["ps", "-e", "-o", "pid=,ppid="], capture_output=True, text=True, check=True
        )
        pairs = [tuple(map(int, line.split())) for line in listed.stdout.splitlines()]
        found = {self.process.pid}
        for _ in range(4):  # generations
            found |= {pid for pid, parent in pairs if parent in found}
        return len(found) - 1


@contextlib.contextmanager
def serving(sim: Simulator | RemoteSimulator, *more: str) -> Iterator[Served]:
    words = ["orders", "--from", "trim-horizon", "--live-web", "0", *more]
    with subprocess.Popen(
        [sys.executable, "-m", "watcher", *words],
        env={**os.environ, **sim.environment},
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as program:
        assert program.stderr is not None
        try:
            for line in program.stderr:  # the watch's own lines are among them
                if found := re.search(r"Live at (http\S+)", line):
                    break
            else:
                raise AssertionError("it has ended")
            yield Served(sim, program, found[1])
            program.send_signal(signal.SIGINT)
            _, said = program.communicate(timeout=60)
            assert program.returncode == 0, said
        finally:
            program.kill()


@pytest.fixture(scope="module")
def served() -> Iterator[Served]:
    with Simulator.spawn(table="orders") as sim:
        sim.bulk(50, keys=7)
        with serving(sim) as server:
            yield server


def test_only_the_whole_url_opens_it(served: Served) -> None:
    for wrong in ("/", "/?token=x", "/ws", "/ws/x"):
        assert served.get(wrong)[0] in (403, 404), wrong
    answer = urllib.request.urlopen(served.url, timeout=60)
    policy = answer.headers["Content-Security-Policy"]
    assert "default-src 'self'" in policy
    assert f"connect-src 'self' ws://{served.host};" in policy


def test_nothing_is_left_with_the_browser_that_another_port_would_be_sent(served: Served) -> None:
    """Cookies know no ports: another server on this machine would get this one's."""
    answer = urllib.request.urlopen(served.url, timeout=60)
    assert answer.headers["Set-Cookie"] is None
    with serving(served.sim) as other:
        assert served.get()[0] == other.get()[0] == 200
        assert other.get(f"/?{urlsplit(served.url).query}")[0] == 403


@pytest.mark.parametrize(
    "headers",
    [
        {"Host": "evil.example"},
        {"Host": "127.0.0.1.evil.example:80"},
        {"Host": "8.8.8.8"},
        {"Origin": "http://evil.example"},
        {"Origin": "http://127.0.0.1:1"},
        {"Origin": "null"},
    ],
)
def test_no_other_servers_page_is_answered(headers: dict[str, str], served: Served) -> None:
    assert served.get(**headers)[0] == 403
    assert served.get("/static/js/textual.js", **headers)[0] == 403
    assert asyncio.run(_opened(served.socket, headers)) == 403


def test_a_tunnel_has_its_own_port(served: Served) -> None:
    status, page = served.get(Host="localhost:9000")
    assert status == 200 and "ws://localhost:9000/ws/" in page


async def _opened(url: str, headers: dict[str, str]) -> int:
    async with aiohttp.ClientSession() as session:
        try:
            async with session.ws_connect(url, headers=headers) as socket:
                await socket.receive_bytes()
                return 101
        except aiohttp.WSServerHandshakeError as error:
            return error.status


def test_a_websocket_without_an_origin_is_no_browsers(served: Served) -> None:
    assert asyncio.run(_opened(served.socket, {})) == 403
    assert asyncio.run(_opened(served.socket, {"Origin": f"http://{served.host}"})) == 101


def test_all_viewers_see_one_watch_and_there_are_only_so_many(served: Served) -> None:
    asyncio.run(_crowd(served))


async def _crowd(served: Served) -> None:
    # The watch's, and its one worker.
    while served.processes() > 2:  # of earlier viewers
        await asyncio.sleep(0.05)
    place, headers = served.socket, {"Origin": f"http://{served.host}"}
    async with aiohttp.ClientSession() as session, contextlib.AsyncExitStack() as stack:
        opened = [
            await stack.enter_async_context(session.ws_connect(place, headers=headers))
            for _ in range(VIEWERS_MAX)
        ]
        await asyncio.gather(*(shows(each, b"50 changes") for each in opened))
        assert served.processes() == 2 + VIEWERS_MAX
        status, text = await asyncio.to_thread(served.get)
        assert (status, text.count("close one")) == (503, 1)
        assert await _opened(place, headers) == 503
        await asyncio.to_thread(served.sim.write, "a", 5)
        await asyncio.gather(*(shows(each, b"55 changes") for each in opened))
    while served.processes() > 2:
        await asyncio.sleep(0.05)
    assert (await asyncio.to_thread(served.get))[0] == 200


async def shows(socket: aiohttp.ClientWebSocketResponse, text: bytes) -> bytes:
    """Waits until the view shows a text, which it may draw in parts; returns all that came."""
    shown = b""
    while text not in re.sub(rb"\x1b\[[0-9;?]*[A-Za-z]", b"", shown):
        message = await socket.receive(timeout=PATIENCE)
        assert isinstance(message.data, bytes), message
        shown += message.data
    return shown


def test_a_browser_shows_the_changes_and_asks_nobody_else(served: Served) -> None:
    try:
        program = browser.find()
    except MissingPart as missing:
        if os.environ.get("CI"):
            pytest.fail(str(missing), pytrace=False)
        pytest.skip(str(missing))
    asyncio.run(_look(program, served.url))


async def _look(program: str, url: str) -> None:
    async with page(program) as tab:
        await tab.call("Network.enable")
        await tab.call("Page.navigate", url=url)
        # The terminal is drawn on a canvas; that something came is written on the page.
        while not await tab.value("document.body.classList.contains('-first-byte')"):
            await asyncio.sleep(0.1)
        loaded = await tab.value(
            "performance.getEntriesByType('resource').filter(e => e.responseStatus == 200)"
            ".map(e => e.name).join('\\n')"
        )
        host = url.partition("?")[0]
        assert loaded
        assert all(each.startswith(host) for each in loaded.splitlines()), loaded
        assert "googleapis" not in await tab.value("document.documentElement.outerHTML")
        assert (await tab.value("document.title")).endswith("orders - watcher")
        while await tab.value("document.activeElement.className") != "xterm-helper-textarea":
            await asyncio.sleep(0.1)
        assert await tab.value("document.querySelector('meta[name=viewport]').content")


class Tab:
    """One page of a browser, by the DevTools protocol."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self._socket = socket
        self._number = 0

    async def call(self, method: str, **parameters: Any) -> Any:
        self._number += 1
        await self._socket.send_json({"id": self._number, "method": method, "params": parameters})
        async for message in self._socket:
            answer = message.json()
            if answer.get("id") == self._number:
                return answer["result"]
        raise AssertionError("the browser has gone")

    async def value(self, expression: str) -> Any:
        answer = await self.call("Runtime.evaluate", expression=expression)
        return answer["result"].get("value")


@contextlib.asynccontextmanager
async def page(program: str) -> AsyncIterator[Tab]:
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        process = await asyncio.create_subprocess_exec(
            program,
            *("--headless", "--no-sandbox", "--disable-gpu", "--no-first-run"),
            *("--disable-background-networking", "--disable-sync", "--disable-dev-shm-usage"),
            *("--remote-debugging-port=0", f"--user-data-dir={profile}", "about:blank"),
            stdin=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            place = Path(profile, "DevToolsActivePort")
            while not (place.exists() and "\n" in place.read_text()):
                await asyncio.sleep(0.05)
            port = place.read_text().splitlines()[0]
            async with aiohttp.ClientSession() as session:
                addresses: list[str] = []
                while not addresses:  # it may listen before its page is there
                    tabs = await (await session.get(f"http://127.0.0.1:{port}/json")).json()
                    pages = [each for each in tabs if each["type"] == "page"]
                    addresses = [each["webSocketDebuggerUrl"] for each in pages]
                (address,) = addresses
                async with session.ws_connect(address, max_msg_size=0) as socket:
                    yield Tab(socket)
        finally:
            process.kill()
            await process.wait()


def test_a_viewer_ends_with_its_server_also_one_that_was_killed(simulator: Simulator) -> None:
    receiving, sending = os.pipe()
    viewer = subprocess.Popen(
        [sys.executable, "-m", "watcher", "orders", "--live", "--live-web="],
        env={
            **os.environ,
            **simulator.environment,
            "TEXTUAL_DRIVER": "textual.drivers.web_driver:WebDriver",
            DESCRIPTOR: str(receiving),
        },
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        pass_fds=[receiving],
    )
    os.close(receiving)
    assert viewer.stdin and viewer.stdout
    try:
        assert viewer.stdout.readline() == b"__GANGLION__\n"  # the view is there
        for end in (viewer.stdin, viewer.stdout):
            end.close()
        os.close(sending)
        viewer.wait(PATIENCE)
    finally:
        viewer.kill()
