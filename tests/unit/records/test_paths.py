"""Paths mean the same in conditions, in redaction rules and in what is printed."""

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from tests.unit.records.test_expressions import record
from watcher.records.filters import record_filter
from watcher.records.paths import path_text
from watcher.records.redaction import redaction

NAMES = st.text(min_size=1, max_size=4).filter(lambda name: "\n" not in name)
NAMES |= st.sampled_from(["a.b", "a`b", "`", "new", "and", "*", "x\ty", " a "])
PATHS = st.tuples(NAMES, st.lists(NAMES | st.integers(0, 2), max_size=3)).map(
    lambda parts: (parts[0], *parts[1])
)


def item_with(path: tuple[str | int, ...]) -> Any:
    """An item with the value 1 at a path, and 0 beside it."""
    value: Any = {"N": "1"}
    for step in reversed(path):
        if isinstance(step, int):
            value = {"L": [*[{"N": "0"}] * step, value, {"N": "0"}]}
        else:
            value = {"M": {step: value, f"{step}-": {"N": "0"}}}
    return value["M"]


@given(PATHS)
def test_a_printed_path_is_a_path_of_a_condition_and_of_a_rule(path: tuple[str | int, ...]) -> None:
    item = item_with(path)
    text = path_text(path)
    words = {"new", "old", "key", "and", "or", "not", "between", "in"}
    made = record_filter([f"new.{text} = 1"]) if not words & {*map(str, path)} else None
    assert made is None or made.matches_wire(record(new=item))
    if not any(isinstance(step, int) for step in path):  # a rule is of all elements
        rule = redaction([f"{text}=keep-type"])
        assert rule is not None
        found = json.loads(bytes(rule.item(json.dumps(item).encode())))
        assert json.dumps(found) == json.dumps(item).replace('"1"}', '"0"}')


def test_a_name_that_is_no_word_is_told_from_a_path() -> None:
    assert path_text(("a", "b", 2, "c-d")) == "a.b[2].c-d"
    assert path_text(("a.b", "x\ty", "a`b")) == "`a.b`.`x\ty`.`a``b`"
