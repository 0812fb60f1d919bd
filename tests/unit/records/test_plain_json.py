import json
from decimal import Decimal
from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from watcher.records.plain_json import plain_json, wire_json

TEXT = st.text(st.characters(codec="utf-8"), max_size=12) | st.sampled_from(
    [
        *('{"S":"x"}', '"}', '{"M":{', "\\", '"', "\n"),
    ]
)
TYPES = ("S", "N", "B", "M", "L", "SS", "NS", "BS", "BOOL", "NULL")
NAMES = TEXT.filter(bool) | st.sampled_from(TYPES)
SCALARS = st.one_of(
    TEXT.map(lambda value: {"S": value}),
    st.decimals(allow_nan=False, allow_infinity=False).map(lambda value: {"N": str(value)}),
    st.just({"B": "AAE="}),
    st.booleans().map(lambda value: {"BOOL": value}),
    st.just({"NULL": True}),
    st.lists(TEXT, min_size=1, max_size=3).map(lambda values: {"SS": values}),
    st.just({"NS": ["1", "2.50"]}),
)
VALUES = st.recursive(
    SCALARS,
    lambda values: (
        st.lists(values, max_size=3).map(lambda content: {"L": content})
        | st.dictionaries(NAMES, values, max_size=3).map(lambda content: {"M": content})
    ),
    max_leaves=6,
)
ITEMS = st.dictionaries(NAMES, VALUES, max_size=4)


def wire(item: Any, blanks: bool = False) -> bytes:
    separators = None if blanks else (",", ":")
    return json.dumps(item, separators=separators, ensure_ascii=False).encode()


def expected(value: dict[str, Any]) -> Any:
    """The same, the slow way."""
    ((kind, content),) = value.items()
    match kind:
        case "N":
            return Decimal(content)
        case "NS":
            return [Decimal(each) for each in content]
        case "NULL":
            return None
        case "M":
            return {name: expected(each) for name, each in content.items()}
        case "L":
            return [expected(each) for each in content]
    return content


@given(items=st.lists(st.none() | ITEMS, max_size=4), blanks=st.booleans())
@example([{"N": {"S": "5"}}] * 8, False)  # names that are types are names
def test_every_image_becomes_the_plain_json_of_its_values(items: list[Any], blanks: bool) -> None:
    lines = plain_json([b"" if item is None else wire(item, blanks) for item in items])
    assert len(lines) == len(items)
    for line, item in zip(lines, items, strict=True):
        if item is None:
            assert line is None
        else:
            assert line is not None
            assert json.loads(line, parse_float=Decimal, parse_int=Decimal) == expected({"M": item})


def test_numbers_keep_their_digits() -> None:
    image = b'{"a":{"N":"12345678901234567890123456789012345678"},"b":{"N":"1.50"}}'
    nested = b'{"a":{"L":[{"N":"1.50"},{"NS":["2.0","3"]}]}}'

    assert plain_json([image, nested]) == [
        '{"a":12345678901234567890123456789012345678,"b":1.50}',
        '{"a":[1.50,[2.0,3]]}',
    ]


def test_what_is_no_json_number_stays_text() -> None:
    assert plain_json([b'{"a":{"N":"007"},"b":{"N":"NaN"}}']) == ['{"a":"007","b":"NaN"}']


def test_the_wire_form_is_passed_on_as_it_is() -> None:
    images = [b'{"a":{"N":"1"}}', b"", b'{"a": \n {"S":"x"}}']

    assert wire_json(images) == ['{"a":{"N":"1"}}', None, '{"a": \n {"S":"x"}}']
