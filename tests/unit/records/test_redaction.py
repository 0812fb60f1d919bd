"""What rules say is private is in no image any more, and nothing else is changed."""

import base64
import hashlib
import hmac
import json
from pathlib import Path
from typing import Any

import pytest

from watcher.errors import UsageError
from watcher.records.record import Record
from watcher.records.redaction import redaction

KEY = "0123456789abcdef0123456789abcdef"
SECRET = "ada@example.com"


@pytest.fixture(autouse=True)
def key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WATCHER_REDACT_KEY", KEY)


def redacted(item: dict[str, Any], *rules: str) -> dict[str, Any]:
    made = redaction(rules)
    assert made is not None
    found: dict[str, Any] = json.loads(bytes(made.item(json.dumps(item).encode())))
    return found


def s(text: str) -> dict[str, str]:
    return {"S": text}


def hashed(text: str) -> str:
    digits = hmac.new(KEY.encode(), text.encode(), hashlib.sha256).hexdigest()[:24]
    return digits + hmac.new(KEY.encode(), f"hash:{digits}".encode(), "sha256").hexdigest()[:8]


ITEM: dict[str, Any] = {
    "PK": s("ada"),
    "email": s(SECRET),
    "age": {"N": "36"},
    "card": {"M": {"number": s("4242"), "last": s("42"), "deep": {"M": {"email": s(SECRET)}}}},
    "items": {"L": [{"M": {"email": s(SECRET), "n": {"N": "1"}}}, s("x")]},
    "tags": {"SS": ["a", SECRET]},
    "sizes": {"NS": ["1", "2"]},
    "photo": {"B": base64.b64encode(SECRET.encode()).decode()},
    "a.b": s("dotted"),
}
ITEMS_MASKED = {"items": {"L": [{"M": {"email": s("***"), "n": {"N": "1"}}}, s("x")]}}


@pytest.mark.parametrize(
    ("rules", "expected"),
    [
        (["email"], {"email": s("***")}),
        (["email=drop"], {"email": None}),
        (["age=mask"], {"age": s("***")}),
        (["age=keep-type,photo=keep-type"], {"age": {"N": "0"}, "photo": {"B": "Kioq"}}),
        (["card=keep-type"], {"card": {"M": {}}}),
        (["card"], {"card": s("***")}),
        (["PK=hash"], {"PK": s(hashed("ada"))}),
        (["photo=hash"], {"photo": s(hashed(SECRET))}),
        (["age=hash"], {"age": s(hashed("36"))}),
        (
            ["card.number=drop , card.deep.email"],
            {"card": {"M": {"last": s("42"), "deep": {"M": {"email": s("***")}}}}},
        ),
        (["`a.b`=drop"], {"a.b": None}),
        # of each member of a list: with the brackets or without them
        (["items[*].email"], ITEMS_MASKED),
        (["items.email"], ITEMS_MASKED),
        (["items[*]=drop"], {"items": {"L": []}}),
        (["tags[*]=hash"], {"tags": {"SS": [hashed("a"), hashed(SECRET)]}}),
        (["tags[*]=keep-type"], {"tags": {"SS": ["***"]}}),
        (["tags[*]=drop"], {"tags": None}),
        (["sizes[*]"], {"sizes": {"SS": ["***"]}}),
        # patterns of names
        (["e*l", "c?rd=drop"], {"email": s("***"), "card": None}),
        (
            ["**.email"],
            {
                "email": s("***"),
                "card": {"M": {**ITEM["card"]["M"], "deep": {"M": {"email": s("***")}}}},
                **ITEMS_MASKED,
            },
        ),
        # the first of several rules
        (["PK=hash,*=drop"], {**dict.fromkeys(ITEM), "PK": s(hashed("ada"))}),
        (["nothing.like.it"], {}),
    ],
)
def test_a_rule_changes_what_it_says_and_nothing_else(
    rules: list[str], expected: dict[str, Any]
) -> None:
    wanted = {name: value for name, value in {**ITEM, **expected}.items() if value is not None}
    assert redacted(ITEM, *rules) == wanted


def test_what_no_rule_touches_keeps_its_bytes() -> None:
    made = redaction(["email", "items[*].email"])
    assert made is not None
    raw = b'{ "age" : {"N": "1.50"}, "items": {"L": [ {"S": "\\u00fc"} ] } }'
    assert made.item(raw) is raw


def test_equal_values_have_equal_hashes_wherever_they_are() -> None:
    one = redacted(
        {"a": {"N": "1.0"}, "b": {"SS": ["x", "y"]}, "m": {"M": {"p": s("1"), "q": s("2")}}},
        "*=hash",
    )
    two = redacted(
        {"c": {"N": "1"}, "d": {"SS": ["y", "x"]}, "k": {"M": {"q": s("2"), "p": s("1")}}}, "*=hash"
    )
    assert list(one.values()) == list(two.values())
    assert len({each["S"] for each in one.values()}) == 3


def test_what_is_redacted_twice_is_redacted_once() -> None:
    for rule in ("*=hash", "*=mask", "*=keep-type", "PK=hash,tags[*]=hash,**=keep-type"):
        once = redacted(ITEM, rule)
        assert redacted(once, rule) == once


def test_a_hash_of_another_key_is_hashed_again(monkeypatch: pytest.MonkeyPatch) -> None:
    once = redacted({"a": s("x")}, "a=hash")
    monkeypatch.setenv("WATCHER_REDACT_KEY", "f" * 32)
    assert redacted(once, "a=hash") != once


def test_a_record_keeps_all_but_its_images() -> None:
    wire = {
        "eventID": "1",
        "eventName": "MODIFY",
        "dynamodb": {
            "ApproximateCreationDateTime": 1.0,
            "Keys": {"PK": s("ada")},
            "NewImage": {"PK": s("ada"), "email": s(SECRET)},
            "OldImage": {"PK": s("ada"), "email": s("before")},
            "SequenceNumber": "100000000000000000001",
            "SizeBytes": 10,
        },
        "eventSourceARN": "arn",
    }
    made = redaction("PK=hash,email")
    assert made is not None
    record = made(Record.from_json(json.dumps(wire).encode(), "shard", "stream"))
    assert (record.shard_id, record.stream) == ("shard", "stream")
    assert record.key == {"PK": hashed("ada")}
    assert record.new == record.old == {"PK": hashed("ada"), "email": "***"}
    left = json.loads(bytes(record.raw))
    for name in ("Keys", "NewImage", "OldImage"):
        left["dynamodb"][name] = wire["dynamodb"][name]  # type: ignore[index]
    assert left == wire


def test_half_a_surrogate_pair_is_no_way_out() -> None:
    made = redaction(["email", "m.email"])
    assert made is not None
    raw = b'{"email":{"S":"\\ud83d"},"m":{"M":{"email":{"S":"\\ud83dx"}}},"n":{"S":"\\ud83d"}}'
    assert json.loads(bytes(made.item(raw))) == {
        "email": s("***"),
        "m": {"M": {"email": s("***")}},
        "n": s("\ue03d"),
    }


def test_the_key_is_shown_nowhere() -> None:
    assert KEY not in repr(redaction(["PK=hash"]))


def test_rules_stand_in_a_file(tmp_path: Path) -> None:
    file = tmp_path / "private"
    file.write_text("# whom it is about\nPK = hash\n\nemail, card.number=drop\n")
    made = redaction([f"@{file}", "age"])
    other = redaction(["PK=hash", "email,card.number=drop", "age"])
    raw = json.dumps(ITEM).encode()
    assert made is not None and other is not None and made.item(raw) == other.item(raw)


@pytest.mark.parametrize(
    ("rule", "reason"),
    [
        ("email=encrypt", "no method 'encrypt'; there are drop, mask, hash, keep-type"),
        (".email", "'.email' in '.email': give PATH or PATH=METHOD"),
        ("c,a..b", "'a..b' in 'c,a..b'"),
        ("[*]", r"a path is such as a.b or list\[\*\].c"),
        ("items[0]", r"'items\[0\]' in"),
        ("a b", "'a b' in 'a b'"),
        ("a,,b", "',b' in 'a,,b'"),
        ("=mask", "give PATH"),
    ],
)
def test_a_wrong_rule_is_refused_in_a_line(rule: str, reason: str) -> None:
    with pytest.raises(UsageError, match=reason) as caught:
        redaction([rule])
    assert caught.value.option == "redact"
    assert "\n" not in str(caught.value)


def test_a_wrong_line_of_a_file_is_named(tmp_path: Path) -> None:
    file = tmp_path / "private"
    file.write_text("PK=hash\nemail=no\n")
    with pytest.raises(UsageError, match=r"private, line 2: .*no method 'no'"):
        redaction(f"@{file}")
    with pytest.raises(UsageError, match=r"redact: can't read .*none: No such file"):
        redaction(f"@{tmp_path}/none")


@pytest.mark.parametrize("key", ["short", ""])
def test_a_hash_without_a_key_is_refused(key: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WATCHER_REDACT_KEY", key)
    with pytest.raises(UsageError, match="a key of at least 16 bytes in WATCHER_REDACT_KEY"):
        redaction("PK=hash")
    assert redaction("PK") is not None


def test_rules_of_which_nothing_was_found_are_known() -> None:
    made = redaction(["email,emial,card.number=drop"])
    assert made is not None
    assert made.unused == ["email", "emial", "card.number=drop"]
    made.item(json.dumps(ITEM).encode())
    assert made.unused == ["emial"]


def test_an_image_that_is_null_stays_so() -> None:
    made = redaction("email")
    assert made is not None
    assert made.item(b"null") == b"null"
