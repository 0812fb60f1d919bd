"""The types of images: from the user's text, and from a sample. No Spark is started here."""

import json
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark")

from pyspark.sql.types import StructType

from tests.spark.played import ARN, PlayedStream
from tests.support.hand_clock import HandClock
from watcher.aws.config import AwsConfig
from watcher.aws.model import Service
from watcher.errors import UsageError
from watcher.spark import image_schema
from watcher.spark.columns import ddl
from watcher.spark.image_schema import ddl_of, grown, parsed
from watcher.spark.inferred_schema import with_schema
from watcher.spark.options import SourceOptions, parse


@pytest.mark.parametrize(
    ("text", "same"),
    [
        ("pk string, qty decimal(38, 0)", "`pk`: string, `qty`: decimal(38,0)"),
        ("`a``b`: MAP<string, array<long>>", "`a``b`: map<string, array<bigint>>"),
        ("at struct<x: int, y: struct<>> COMMENT 'of, two'", None),
        ("a dec(5), b timestamp_ntz, c string collate utf8_lcase, d numeric", None),
    ],
)
def test_spark_s_ddl_is_read(text: str, same: str | None) -> None:
    struct = parsed(text)

    assert parsed(ddl_of(struct)) == struct
    assert same is None or ddl_of(struct) == same


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (
            "pk strin, n int",
            "'strin' is not a type, here: pk >>> strin, n int; possible are string, ",
        ),
        ("pk string, n", "n has no type, here: pk string, n >>>; possible are string, "),
        ("pk string n int", "a comma is missing before 'n', here: pk string >>> n int"),
        ("pk string,", "a name is missing, here: pk string, >>>"),
        ("", "a name is missing, here: >>>"),
        ("Pk string, pk int", "pk is there twice (Pk and pk are one), here: Pk string, >>> pk int"),
        ("a array<int", "'>' is missing after the array's type, here: a array<int >>>"),
        ("a struct<b int c int>", "a comma or '>' is missing before 'c', here: a struct<b int >>>"),
        (
            "a struct<b int NOT NULL>",
            "an image may lack b: leave NOT NULL out, here: a struct<b int >>> NOT NULL>",
        ),
        (
            "a decimal(40,2)",
            "give decimal(DIGITS,SCALE) of up to 38 digits, here: a decimal >>> (",
        ),
    ],
)
def test_an_error_points_into_the_user_s_own_text(text: str, told: str) -> None:
    with pytest.raises(UsageError) as error:
        ddl(parse({"stream": "orders", "imageSchema": text or " "}, streaming=True))

    assert str(error.value).startswith(f"imageSchema: {told}")


def test_a_sample_s_attributes_become_fields() -> None:
    images: list[dict[str, dict[str, Any]]] = [
        {
            "pk": {"S": "a"},
            "qty": {"N": "1"},
            "at": {"M": {"city": {"S": "Bonn"}}},
            "lines": {"L": [{"M": {"sku": {"S": "x"}}}, {"M": {"n": {"N": "2"}}}]},
            "mixed": {"L": [{"S": "x"}, {"N": "1"}]},
            "nothing": {"NULL": True},
            "empty": {"L": []},
        },
        {"pk": {"S": "b"}, "qty": {"S": "many"}, "at": {"M": {"zip": {"N": "1"}}}},
    ]

    found = grown(StructType(), images)

    assert found == parsed(
        "at struct<city string, zip decimal(38,18)>,"
        "lines array<struct<sku string, n decimal(38,18)>>,"
        "mixed array<string>, pk string, qty string"
    )


def test_a_known_field_keeps_its_type_and_gets_more_fields() -> None:
    known = parsed("n int, at struct<a int>")

    found = grown(known, [{"n": {"S": "x"}, "N": {"S": "x"}, "at": {"M": {"b": {"S": "x"}}}}])

    assert found == parsed("n int, at struct<a int, b string>")
    assert image_schema.from_text(image_schema.to_text(found)) == found


# From a stream


def stream(*images: dict[str, Any]) -> PlayedStream:
    played = PlayedStream(HandClock())
    played.write("shard", range(len(images)))
    played.images = dict(enumerate(images))
    return played


def inferred(played: PlayedStream, **more: str) -> SourceOptions:
    given = parse({"stream": ARN, "inferSchema": "true", **more}, streaming=True)

    def connect(name: str, connection: AwsConfig) -> tuple[Service, str]:
        return played, ARN

    return with_schema(given, connect, HandClock())


def test_a_schema_is_inferred_from_the_stream_s_changes() -> None:
    played = stream({"pk": {"S": "a"}}, {"pk": {"S": "b"}, "qty": {"N": "1"}})
    played.write("child", [], parent="shard")  # the newest one has none

    options = inferred(played)

    assert options.image_schema == "`pk`: string, `qty`: decimal(38,18)"
    assert options.rescued_data == "all", "what the sample has not shown is not lost"


def test_the_user_s_types_come_before_those_of_the_sample() -> None:
    options = inferred(stream({"pk": {"S": "a"}, "qty": {"N": "1"}}), imageSchema="qty bigint")

    assert options.image_schema == "`qty`: bigint, `pk`: string"


def test_a_stream_without_changes_has_no_schema() -> None:
    with pytest.raises(UsageError, match="the stream holds no change to infer a schema from"):
        inferred(stream())


def test_a_schema_in_a_folder_only_grows(tmp_path: Path) -> None:
    place = str(tmp_path / "kept")
    first = inferred(stream({"pk": {"S": "a"}, "qty": {"N": "1"}}), schemaLocation=place)
    second = inferred(stream({"qty": {"S": "x"}, "to": {"S": "Bonn"}}), schemaLocation=place)
    third = inferred(stream(), schemaLocation=place)

    assert first.image_schema == "`pk`: string, `qty`: decimal(38,18)"
    assert second.image_schema == f"{first.image_schema}, `to`: string"
    assert third.image_schema == second.image_schema


def test_a_folder_that_holds_something_else_is_refused(tmp_path: Path) -> None:
    (tmp_path / "dynamodb-streams-schema.json").write_text(json.dumps({"version": 99}))

    with pytest.raises(
        UsageError, match=r"schemaLocation .*: can't be read: written by a newer watcher"
    ):
        inferred(stream({"pk": {"S": "a"}}), schemaLocation=str(tmp_path))


def test_a_place_without_inference_is_a_mistake() -> None:
    with pytest.raises(UsageError, match="schemaLocation is for inferSchema=true"):
        parse({"stream": "orders", "schemaLocation": "x"}, streaming=True)
