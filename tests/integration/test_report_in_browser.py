"""The report in a real browser: light, dark, narrow; hostile data."""

from pathlib import Path

import pytest

pytest.importorskip("PIL")

from tests.simulator import Simulator
from tests.support import browser
from tests.support.dynamodb_local import MissingPart
from tests.support.program import run

LIGHT = {"INSERT": "#009e73", "MODIFY": "#e69f00", "REMOVE": "#b3261e"}
DARK = {"INSERT": "#1fae86", "MODIFY": "#e69f00", "REMOVE": "#ef6a5e"}
HOSTILE = "<script>document.title='gone'</script><img src=http://127.0.0.1:1/x>\x1b[31m&amp;\u202e"


@pytest.fixture(autouse=True, scope="module")
def chromium() -> None:
    try:
        browser.find()
    except MissingPart as missing:
        pytest.skip(str(missing))


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A report of a stream with four generations of shards, and a hostile key and attribute."""
    path = tmp_path_factory.mktemp("report") / "report.html"
    with Simulator(table="orders", shards=4) as sim:
        for generation in range(4):
            sim.put({"pk": {"S": HOSTILE}, "<b>n</b>": {"N": str(generation)}})
            sim.bulk(300, keys=10, remove_every=7)
            sim.put({"pk": {"S": f"old-{generation}"}})
            sim.remove(f"old-{generation}", ttl=True)
            sim.advance(4000)
            for shard_id in sim.open_shards:
                sim.split(shard_id) if generation == 1 else sim.rotate(shard_id)
        sim.put({"pk": {"S": "long" * 500}})
        sim.advance(1200)
        program = run("report", sim.stream_arn, "--to", str(path), env=sim.environment)
    assert program.status == 0, program.err
    assert program.err[-1] == f"Wrote {path}: 1,213 changes"
    return path


@pytest.fixture(scope="module")
def light(page: Path) -> browser.Look:
    return browser.look(page, height=4000)


@pytest.mark.parametrize(("dark", "colours"), [(False, LIGHT), (True, DARK)])
def test_the_pictures_are_there_in_the_light_and_in_the_dark(
    page: Path, light: browser.Look, dark: bool, colours: dict[str, str]
) -> None:
    seen = browser.look(page, dark=True, height=4000) if dark else light
    # More than the legend's squares of 12 by 12 and the tiles' borders of 4 pixels.
    for kind, colour in colours.items():
        assert seen.pixels(colour) > (300 if kind != "MODIFY" else 2000), kind
    paper = "#14181d" if dark else "#ffffff"
    assert seen.picture.getpixel((5, 5)) == tuple(bytes.fromhex(paper[1:]))
    assert 0.5 < seen.pixels(paper) / (seen.picture.width * seen.picture.height) < 0.98


def test_it_asks_for_nothing_and_complains_of_nothing(
    page: Path, light: browser.Look, tmp_path: Path
) -> None:
    # Without its own policy, which would keep it from asking.
    bare = tmp_path / "bare.html"
    text = page.read_text("utf-8")
    assert "default-src 'none'" in text
    bare.write_text(text.replace('http-equiv="Content-Security-Policy"', ""), "utf-8")
    for seen in (light, browser.look(bare)):
        assert (seen.console, seen.requests) == ([], [])


def test_hostile_keys_and_attributes_are_shown_as_text(light: browser.Look) -> None:
    dom = light.dom
    assert "<script" not in dom and "<img" not in dom and "<b>" not in dom
    assert "pk=&lt;script&gt;document.title='gone'&lt;/script&gt;&lt;img" in dom
    assert "\\x1b[31m&amp;amp;\\u202e" in dom
    assert "&lt;b&gt;n&lt;/b&gt;" in dom
    assert "\x1b" not in dom
    assert "<title>Changes of orders</title>" in dom
