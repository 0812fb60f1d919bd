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
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from tests.simulator import Simulator
from tests.support import browser
from tests.support.dynamodb_local import MissingPart


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    """A watch's live view, served; what to open."""
    with Simulator.spawn(table="orders") as sim:
        sim.bulk(50, keys=7)
        words = ["orders", "--from", "trim-horizon", "--live-web", "0"]
        with subprocess.Popen(
            [sys.executable, "-m", "watcher", *words],
            env={**os.environ, **sim.environment},
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        ) as program:
            assert program.stderr is not None
            said = program.stderr.readline()
            found = re.search(r"http\S+", said)
            assert found, said
            try:
                yield found[0]
                program.send_signal(signal.SIGINT)
                assert program.wait(30) == 0
            finally:
                program.kill()


def test_only_the_whole_url_opens_it(url: str) -> None:
    page = url.partition("?")[0]
    for wrong in (page, f"{page}?token=x", f"{page}static/js/textual.js"):
        with pytest.raises(urllib.error.HTTPError, match="403"):
            urllib.request.urlopen(wrong, timeout=20)
    answer = urllib.request.urlopen(url, timeout=20)
    assert "default-src 'self'" in answer.headers["Content-Security-Policy"]
    assert "HttpOnly" in answer.headers["Set-Cookie"]


def test_a_browser_shows_the_changes_and_asks_nobody_else(url: str) -> None:
    try:
        program = browser.find()
    except MissingPart as missing:
        if os.environ.get("CI"):
            pytest.fail(str(missing), pytrace=False)
        pytest.skip(str(missing))
    asyncio.run(_look(program, url))


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
