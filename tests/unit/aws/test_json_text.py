"""JSON text as DynamoDB sends it, read where strict decoders give up."""

import json
from typing import Any

import hypothesis.strategies as st
import msgspec
from hypothesis import example, given

from watcher.aws.json_text import mend, read

ANY = msgspec.json.Decoder()


@given(st.lists(st.sampled_from(["\ud83d", "\ude00", "\\", "u", "a", "ud83d", '"']), max_size=8))
@example(["\\", "ud83d"])
@example(["\ud83d", "\ud83d", "\ude00"])
def test_halves_of_pairs_become_characters_of_private_use(parts: list[str]) -> None:
    text = json.dumps("".join(parts)).encode()
    whole = "".join(parts).encode("utf-16", "surrogatepass").decode("utf-16", "surrogatepass")
    expected = [chr(ord(each) + 0x800) if "\ud800" <= each < "\ue000" else each for each in whole]
    assert read(ANY, text) == "".join(expected)
    assert len(mend(text)) == len(text)


HALVES = ["\ud83d", "\ude00", "\udbff", "\ud800"]
TEXTS = st.text(st.sampled_from([*HALVES, "a", "\ufffd", "\\", '"']), max_size=3)


@given(st.dictionaries(TEXTS, TEXTS, max_size=4), st.lists(TEXTS, unique=True, max_size=4))
def test_no_name_and_no_member_is_lost(names: dict[str, str], members: list[str]) -> None:
    text = json.dumps({"M": names, "SS": members}).encode()
    found: Any = read(msgspec.json.Decoder(), text)
    assert len(mend(text)) == len(text)
    assert len(found["M"]) == len(names)
    assert len(set(found["SS"])) == len(members)
