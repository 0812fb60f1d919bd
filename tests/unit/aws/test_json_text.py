"""JSON text as DynamoDB sends it, read where strict decoders give up."""

import json

import hypothesis.strategies as st
import msgspec
import pytest
from hypothesis import example, given

from watcher.aws.json_text import mend, read

ANY = msgspec.json.Decoder()


@given(st.text(st.characters(), max_size=20).map(json.dumps))
def test_what_a_strict_decoder_reads_is_left_alone(text: str) -> None:
    assert mend(text.encode()) == text.encode()


@given(st.lists(st.sampled_from(["\ud83d", "\ude00", "\\", "u", "a", "ud83d", '"']), max_size=8))
@example(["\\", "ud83d"])
@example(["\ud83d", "\ud83d", "\ude00"])
def test_halves_of_pairs_become_the_replacement_character(parts: list[str]) -> None:
    text = json.dumps("".join(parts)).encode()
    expected = "".join(parts).encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    assert read(ANY, text) == expected
    assert len(mend(text)) == len(text)


@pytest.mark.parametrize("text", [b"", b"{", b'"\\ud83d', b'"\\x"', b"nonsense"])
def test_what_is_no_json_is_an_error_as_ever(text: bytes) -> None:
    with pytest.raises(msgspec.DecodeError):
        read(ANY, text)
