"""A page as a real browser shows it: its text, its picture, what it complained of and asked for."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

from PIL import Image

from tests.support.dynamodb_local import MissingPart

SCRIPT = Path(__file__).parents[2] / "scripts" / "chromium"


def find() -> str:
    """Return the browser's path, or raise MissingPart."""
    done = subprocess.run([sys.executable, SCRIPT, "find"], capture_output=True, text=True)
    if done.returncode != 0:
        raise MissingPart(done.stderr.strip())
    return done.stdout.strip()


class Look(NamedTuple):
    """What there was to see."""

    dom: str
    picture: Image.Image
    console: list[str]
    requests: list[str]
    """What the page asked for beside itself."""

    def pixels(self, colour: str) -> int:
        """How many pixels have exactly this colour (`#0072b2`)."""
        wanted = tuple(bytes.fromhex(colour[1:]))
        colours = self.picture.getcolors(self.picture.width * self.picture.height)
        assert colours is not None
        return sum(count for count, found in colours if found == wanted)


def look(page: Path, *more: str, dark: bool = False, width: int = 1100, height: int = 2000) -> Look:
    """Open a page, with nothing but itself within reach; `more` are Chromium's own switches."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        shot, log = Path(profile, "page.png"), Path(profile, "net.json")
        done = subprocess.run(
            [
                find(),
                *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic"),
                *("--no-first-run", "--disable-background-networking", "--disable-sync"),
                *("--disable-component-update", "--disable-dev-shm-usage", "--hide-scrollbars"),
                # What the browser itself would like to ask its makers stays here.
                "--host-resolver-rules=MAP * ~NOTFOUND",
                f"--blink-settings=preferredColorScheme={0 if dark else 1}",
                f"--user-data-dir={profile}",
                f"--window-size={width},{height}",
                *more,
                *("--dump-dom", f"--screenshot={shot}"),
                *("--enable-logging=stderr", f"--log-net-log={log}"),
                page.absolute().as_uri(),
            ],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=60,
            check=True,
        )
        picture = Image.open(shot).convert("RGB")
        console = [line for line in done.stderr.splitlines() if ":CONSOLE" in line]
        return Look(done.stdout, picture, console, _requests(log))


def _requests(log: Path) -> list[str]:
    """What was asked for by a page; not by the browser, which is "not an origin"."""
    events = [event.get("params", {}) for event in json.loads(log.read_text())["events"]]
    return [
        event["url"]
        for event in events
        if event.get("initiator", "not an origin") != "not an origin"
        and not event["url"].startswith("file:")
    ]
