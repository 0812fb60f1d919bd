"""JSON text as DynamoDB sends it, read where strict decoders give up."""

import json
from typing import Any

import hypothesis.strategies as st
import msgspec
import pytest
from hypothesis import example, given

from watcher.aws.json_text import mend, read
from watcher.records.record import Record, image_of

ANY = msgspec.json.Decoder()


@given(st.text(st.characters(codec="utf-8"), max_size=20).map(json.dumps))
def test_what_a_strict_decoder_reads_is_left_alone(text: str) -> None:
    assert mend(text.encode()) == text.encode()


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


@pytest.mark.parametrize("halves", [("\ud83d", "\ude00"), ("x\ud83d", "x\ud800")])
def test_two_attributes_with_different_halves_stay_two(halves: tuple[str, str]) -> None:
    one, other = halves
    members = {"S": "a"}, {"SS": [one, other]}
    image: dict[str, Any] = {"pk": members[0], one: {"N": "1"}, other: {"N": "2"}, "s": members[1]}
    change = {"SequenceNumber": "1", "Keys": {"pk": {"S": "a"}}, "NewImage": image}
    made = Record.from_json(json.dumps({"eventName": "INSERT", "dynamodb": change}).encode())
    assert made.new is not None
    assert len(made.new) == 4 and len(made.new["s"]) == 2
    assert json.loads(bytes(made.raw))["dynamodb"]["NewImage"] == image
    assert len(msgspec.json.decode(image_of(image))) == 4
