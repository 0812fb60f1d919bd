import json
import re
from decimal import Decimal
from typing import Any

import msgspec
from hypothesis import given

from tests.support.odd_pages import pages
from watcher.aws.json_text import read
from watcher.records.page import decode
from watcher.records.plain_json import plain_json, wire_json
from watcher.records.record import native

DECODER = msgspec.json.Decoder()


def number(text: str) -> Decimal | str:
    is_json = re.fullmatch(r"-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?", text)
    return Decimal(text) if is_json else text


def expected(value: dict[str, Any]) -> Any:
    """The same, the slow way."""
    ((kind, content),) = value.items()
    match kind:
        case "N":
            return number(content)
        case "NS":
            return [number(each) for each in content]
        case "NULL":
            return None
        case "M":
            return {name: expected(each) for name, each in content.items()}
        case "L":
            return [expected(each) for each in content]
    return content


@given(body=pages())
def test_every_image_becomes_the_plain_json_of_its_values(body: bytes) -> None:
    images = [bytes(each.dynamodb.NewImage) for each in decode(body).Records]
    lines = plain_json(images)
    assert len(lines) == len(images)
    for line, image in zip(lines, images, strict=True):
        if line is None:
            assert image == b""
        else:
            found = json.loads(line, parse_float=Decimal, parse_int=Decimal)
            assert found == expected({"M": read(DECODER, image)})


def test_names_that_are_types_are_names() -> None:
    assert plain_json([b'{"N":{"S":"5"},"M":{"M":{"S":{"N":"1"}}}}']) == ['{"N":"5","M":{"S":1}}']


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


def test_a_value_whose_type_is_left_out_is_null_wherever_it_is_read() -> None:
    """https://github.com/awslabs/amazon-dynamodb-local-samples/issues/37: empty maps and lists."""
    assert plain_json([b'{"m":{},"l":{"L":[{}]}}']) == ['{"m":null,"l":[null]}']
    assert native({}) is None and native({"L": [{}]}) == [None]
