import base64
import json
from decimal import Decimal
from typing import Any

from boto3.dynamodb.types import Binary, TypeDeserializer
from hypothesis import example, given
from hypothesis import strategies as st

from watcher.records.plain_json import plain_json, wire_json
from watcher.records.record import binary_of

TEXT = st.text(st.characters(codec="utf-8"), max_size=12) | st.sampled_from(
    [
        '{"S":"x"}',
        '"}',
        "},",
        '{"M":{',
        ": {",
        "\\",
        '"',
        "\n",
        '{"NULL":true}',
        "}",
        "{",
        "}}",
        ":[",
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
def test_every_image_becomes_the_plain_json_of_its_values(items: list[Any], blanks: bool) -> None:
    lines = plain_json([b"" if item is None else wire(item, blanks) for item in items])
    assert len(lines) == len(items)
    for line, item in zip(lines, items, strict=True):
        if item is None:
            assert line is None
        else:
            assert line is not None
            assert json.loads(line, parse_float=Decimal, parse_int=Decimal) == expected({"M": item})


# Items that look like values: each name is a type's, each text a number's, each map small.
LIKE_VALUES = st.recursive(
    st.sampled_from(
        [
            *({"S": "5"}, {"S": ""}, {"N": "5"}, {"N": "-0.5e1"}, {"B": "AAE="}, {"BOOL": True}),
            *({"NULL": True}, {"SS": ["5"]}, {"NS": ["5"]}, {"BS": ["AAE="]}),
        ]
    ),
    lambda values: (
        st.lists(values, max_size=1).map(lambda content: {"L": content})
        | st.dictionaries(st.sampled_from(TYPES), values, max_size=1).map(lambda each: {"M": each})
    ),
    max_leaves=4,
)


@given(st.dictionaries(st.sampled_from(TYPES), LIKE_VALUES, min_size=1, max_size=2))
@example({"N": {"S": "5"}})
def test_names_that_are_types_are_names(item: Any) -> None:
    (line,) = plain_json([wire(item)])
    assert json.loads(line or "", parse_float=Decimal, parse_int=Decimal) == {
        name: as_json(TypeDeserializer().deserialize(botocores(value)))
        for name, value in item.items()
    }


def botocores(value: Any) -> Any:
    """A value in botocore's form: binary as bytes."""
    ((kind, content),) = value.items()
    match kind:
        case "B":
            return {kind: base64.b64decode(content)}
        case "BS":
            return {kind: [*map(base64.b64decode, content)]}
        case "M":
            return {kind: {name: botocores(each) for name, each in content.items()}}
        case "L":
            return {kind: [*map(botocores, content)]}
    return value


def as_json(native: Any) -> Any:
    match native:
        case Binary():
            return base64.b64encode(binary_of(native) or b"").decode()
        case dict():
            return {name: as_json(each) for name, each in native.items()}
        case list() | set():
            return [*map(as_json, native)]
    return native


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
