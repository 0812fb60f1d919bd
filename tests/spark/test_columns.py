"""A read's columns: which there are, how their images may change, and typed images."""

import json
import pickle
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark")

import msgspec
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw
from pyspark.errors import PySparkException
from pyspark.sql.types import (
    ArrayType,
    DataType,
    DayTimeIntervalType,
    IntegerType,
    MapType,
    NullType,
    StringType,
    StructType,
    VarcharType,
    VariantType,
    YearMonthIntervalType,
)

from tests.simulator import RemoteSimulator
from tests.spark.conftest import options
from tests.support.wire import body
from watcher.errors import UsageError
from watcher.records.typed_values import (
    RESCUED,
    DoesNotFitError,
    converter,
    strict_converter,
)
from watcher.spark.columns import (
    ArrowEncoder,
    Rest,
    TypedImages,
    ddl,
    refuse_changed_images,
    refuse_unfit_types,
    type_shape,
)
from watcher.spark.options import parse
from watcher.streams.messages import Page

INT, STRING = IntegerType(), StringType()


def test_only_the_columns_that_are_asked_for_are_made() -> None:
    options = parse({"stream": "orders", "columns": "sequence_number, event_name"}, streaming=True)
    assert ddl(options) == "sequence_number string, event_name string"
    schema = pa.schema([("sequence_number", pa.string()), ("event_name", pa.string())])
    page = Page(0, 2, "0", body([1, 2]))

    batch = ArrowEncoder(options, schema).encode(page, "a")

    assert batch.schema == schema
    assert batch.column("event_name").to_pylist() == ["MODIFY", "MODIFY"]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"columns": "new_imge"}, "columns: no column new_imge; did you mean new_image?"),
        ({"columns": "record"}, "no column record; did you mean "),
        (
            {"columns": "record,keys", "wireRecords": "true"},
            "no column keys; did you mean shard_id",
        ),
        ({"columns": "keys,,"}, "give names with commas"),
        ({"columns": "keys,keys"}, "each once"),
    ],
)
def test_a_column_that_there_is_not_is_refused(given: dict[str, str], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        ddl(parse({"stream": "orders", **given}, streaming=False))


def test_changed_attributes_is_a_column_like_others() -> None:
    given = {"stream": "orders", "changedAttributes": "true", "columns": "keys,changed_attributes"}

    assert ddl(parse(given, streaming=True)) == "keys string, changed_attributes array<string>"


# On the same checkpoint


def test_a_type_as_an_offset_keeps_it() -> None:
    city = StructType().add("city", STRING)
    kind = StructType().add("a", INT).add("l", ArrayType(city)).add("m", MapType(STRING, city))
    assert type_shape(kind) == {
        "a": "int",
        "l": [{"city": "string"}],
        "m": ["map", {"city": "string"}],
    }


@pytest.mark.parametrize(
    ("before", "now"),
    [
        (None, {"a": "int"}),  # an earlier version's
        ("json", "json"),
        ({"a": "int"}, {"a": "int", "b": "int"}),
        ({"a": {"b": "int"}}, {"a": {"b": "int", "c": "int"}}),
        ({"a": [{"b": "int"}]}, {"a": [{"b": "int", "c": "int"}]}),
    ],
)
def test_it_may_stay_or_grow(before: Any, now: Any) -> None:
    refuse_changed_images(before, now)


@pytest.mark.parametrize(
    ("before", "now", "text"),
    [
        ({"a": "int"}, {"a": "string"}, "a was int, and is string"),
        ({"a": "int", "b": "int"}, {"a": "int"}, "b is gone"),
        ({"a": {"b": "int"}}, {"a": {"b": "date"}}, "a.b was int, and is date"),
        ({"a": ["int"]}, {"a": ["map", "int"]}, "a was an array of int, and is a map of int"),
        ({"a": "int"}, "json", "an image was a struct, and is json"),
        ("json", "dynamodb-json", "an image was json, and is dynamodb-json"),
    ],
)
def test_it_may_not_change(before: Any, now: Any, text: str) -> None:
    with pytest.raises(UsageError, match=rf"differs from the checkpoint's: {text}\. You can only"):
        refuse_changed_images(before, now)


@pytest.mark.spark
def test_a_query_is_refused_before_it_writes_anything(
    spark: Any, sim: RemoteSimulator, tmp_path: Path
) -> None:
    to, kept = str(tmp_path / "to"), str(tmp_path / "kept")

    def run(schema: str) -> None:
        frame = spark.readStream.format("dynamodb_streams").options(
            **options(sim, startingPosition="trim_horizon", imageSchema=schema)
        )
        writer = frame.load().select("new_image").writeStream.trigger(availableNow=True)
        writer.start(to, "parquet", checkpointLocation=kept).awaitTermination()

    for schema in ("pk string", "n int, pk string"):
        sim.put({"pk": {"S": "a"}, "n": {"N": "1"}})
        sim.advance(2)
        run(schema)
    sim.put({"pk": {"S": "a"}, "n": {"N": "2"}})
    sim.advance(2)
    with pytest.raises(PySparkException, match=r"n was int, and is string\. You can only add"):
        run("pk string, n string")

    rows = spark.read.option("mergeSchema", "true").parquet(to).select("new_image.*")
    assert sorted(map(tuple, rows.select("n", "pk").collect()), key=str) == [(1, "a"), (None, "a")]


# Typed images


@pytest.mark.parametrize(
    ("digits", "scale", "value"),
    [("12.5", 0, None), ("12.0", 0, "12"), ("12.5", 2, "12.50"), ("1" * 39, 0, None)],
)
def test_a_number_that_does_not_fit_a_decimal_is_null(
    digits: str, scale: int, value: str | None
) -> None:
    convert = converter(pa.decimal128(38, scale))

    assert convert({"N": digits}) == (value and Decimal(value))


@pytest.mark.parametrize("text", ["NaN", "Infinity", "abc", ""])
def test_an_emulator_s_number_that_is_none_is_null(text: str) -> None:
    for kind in (pa.decimal128(38, 2), pa.int32()):
        assert converter(kind)({"N": text}) is None
    assert converter(pa.float64())({"N": "abc"}) is None


@pytest.mark.parametrize(
    ("kind", "told"),
    [
        (VariantType(), "variant"),
        (DayTimeIntervalType(0, 0), "interval day"),
        (YearMonthIntervalType(0, 0), "interval year"),
        (ArrayType(VarcharType(10)), "varchar(10)"),
        (MapType(IntegerType(), StringType()), "map<int,string>"),
        (NullType(), "void"),
    ],
)
def test_a_type_that_no_attribute_can_become_is_refused(kind: DataType, told: str) -> None:
    image = StructType().add("pk", "string").add("deep", StructType().add("inside", kind))
    schema = StructType().add("keys", "string").add("new_image", image)

    with pytest.raises(UsageError) as error:
        refuse_unfit_types(schema)

    assert str(error.value).startswith(f"imageSchema: inside can't be {told}; possible are string,")


def test_a_string_for_an_image_is_fine() -> None:
    refuse_unfit_types(StructType().add("new_image", "string").add("old_image", "string"))


KIND = pa.struct(
    [
        ("text", pa.string()),
        ("small", pa.int16()),
        ("big", pa.int64()),
        ("exact", pa.decimal128(10, 2)),
        ("about", pa.float64()),
        ("yes", pa.bool_()),
        ("bytes", pa.binary()),
        ("at", pa.timestamp("us", tz="UTC")),
        ("tags", pa.list_(pa.string())),
        ("an odd.name", pa.map_(pa.string(), pa.int32())),
        ("deep", pa.struct([("zip", pa.string())])),
    ]
)
VALUES: list[Any] = [
    *({"S": text} for text in ("", "a\u2028\n", "2026-11-21T08:00:00Z")),
    *({"N": digits} for digits in ("7", "-7", "007", "1E2", "12.50", "32768", "9" * 18, "9" * 30)),
    *({"BOOL": True}, {"NULL": True}, {"B": "AAE="}, {"SS": ["a", "b"]}, {"NS": ["1", "2"]}),
    *({"L": [{"S": "a"}, {"N": "1"}]}, {"M": {"zip": {"S": "3511"}}}, {"M": {}}, {"BS": ["AAE="]}),
]


def test_columns_hold_what_whole_items_do() -> None:
    """Each value in each type, through the fast way and through the plain one."""
    items = [{name: value, "more": value} for value in VALUES for name in KIND.names]
    raws = [Raw(msgspec.json.encode(item)) for item in items]
    raws += [Raw(b""), Raw(b"{}")]
    convert = converter(KIND)
    rows = [convert({"M": msgspec.json.decode(raw)}) if bytes(raw) else None for raw in raws]

    column = TypedImages(KIND).column(raws)

    assert column.equals(pa.array(rows, KIND))


NUMBERS = st.one_of(
    st.decimals(allow_nan=False, allow_infinity=False).map(str),
    st.integers(-(2**64), 2**64).map(str),
    st.sampled_from(["-0", "0.0", "007", "1_0", "1.", ".5", "+5", "0x10", "1e3", "NaN", "", " 1"]),
    st.sampled_from(
        ["9" * 38, "9" * 39, "127", "-128", "128", "2147483648", "0." + "0" * 37 + "1"]
    ),
)
TEXTS = st.sampled_from(["", "a", "2026-11-21", "\u2028", '"\\', "\U0001f600", "\x00", "\x7f"])
LEAVES = st.one_of(
    NUMBERS.map(lambda digits: {"N": digits}),
    TEXTS.map(lambda text: {"S": text}),
    st.lists(TEXTS, max_size=2).map(lambda texts: {"SS": texts}),
    st.lists(NUMBERS, max_size=2).map(lambda digits: {"NS": digits}),
    st.sampled_from([*VALUES, {"BS": []}, {"L": []}, {"B": ""}, {"BOOL": False}, {}]),
)
ANY_VALUES = st.recursive(
    LEAVES,
    lambda inner: (
        st.lists(inner, max_size=2).map(lambda values: {"L": values})
        | st.dictionaries(st.sampled_from(["zip", "", "S", "a"]), inner, max_size=2).map(
            lambda values: {"M": values}
        )
    ),
    max_leaves=3,
)
ODD_KIND = pa.struct(
    [
        *KIND,
        ("all digits", pa.decimal128(38, 0)),
        ("all places", pa.decimal128(38, 38)),
        ("tiny", pa.int8()),
        ("rough", pa.float32()),
        ("day", pa.date32()),
        ("numbers", pa.list_(pa.int32())),
    ]
)
SPELLINGS = st.sampled_from(
    [
        lambda item: json.dumps(item, separators=(",", ":"), ensure_ascii=False),
        lambda item: json.dumps(item, separators=(" ,\t", "\r:\n ")),
        # A name with an escape, and once more the same: the last one counts.
        lambda item: json.dumps(item).replace('"big"', r'"\u0062ig"'),
        lambda item: '{"big": {"N": "1"}, ' + json.dumps(item)[1:] if item else "{}",
    ]
)


def rest_one_by_one(raws: list[Raw], *, whole: bool) -> Rest:
    """What images hold and typed ones do not, by the plain way."""
    fields = {field.name: strict_converter(field.type, whole=whole) for field in ODD_KIND}
    rest: Rest = {}
    for row, raw in enumerate(raws):
        item = msgspec.json.decode(bytes(raw) or b"{}")
        for name, wire in msgspec.json.decode(bytes(raw) or b"{}", type=dict[str, Raw]).items():
            try:
                fields[name](item[name])
            except DoesNotFitError:
                rest.setdefault(row, {})[name] = wire
            except KeyError:
                if whole:
                    rest.setdefault(row, {})[name] = wire
    return rest


@given(
    st.lists(
        st.tuples(
            st.none() | st.dictionaries(st.sampled_from([*ODD_KIND.names, "more"]), ANY_VALUES),
            SPELLINGS,
        ),
        max_size=8,
    )
)
def test_odd_values_become_the_columns_that_whole_items_do(rows: list[Any]) -> None:
    raws = [Raw(b"" if item is None else spell(item).encode()) for item, spell in rows]
    convert = converter(ODD_KIND)
    whole = [convert({"M": msgspec.json.decode(raw)}) if bytes(raw) else None for raw in raws]

    column = TypedImages(ODD_KIND).column(raws)
    for whole_images in (False, True):
        rest: Rest = {}
        same = TypedImages(ODD_KIND, whole=whole_images).column(raws, rest)
        assert str(same) == str(column)
        assert rest == rest_one_by_one(raws, whole=whole_images)

    # As text: not a number is no more itself than -0.0 is another zero.
    assert str(column.to_pylist()) == str(pa.array(whole, ODD_KIND).to_pylist())
    column.validate(full=True)


@pytest.mark.parametrize(
    "kind", [field.type for field in ODD_KIND if str(field.type).startswith(("int", "dec", "fl"))]
)
def test_each_number_is_what_it_is_one_by_one(kind: pa.DataType) -> None:
    edges = [10**digits for digits in (0, 1, 2, 3, 4, 5, 8, 9, 18, 19, 36, 37, 38)]
    edges += [2**bits for bits in (7, 15, 31, 63)]
    whole = {str(sign * (edge + off)) for edge in edges for off in (-1, 0, 1) for sign in (1, -1)}
    parts = {"", ".0", ".5", ".25", ".125", "." + "0" * 37 + "1", "." + "9" * 38, "." + "9" * 39}
    digits = [f"{each}{part}" for each in sorted(whole) for part in sorted(parts)]
    digits += ["-0", "007", "1_0", "1.", ".5", "+5", "0x10", "1e3", "NaN", "", " 1", "1 ", "1 1"]
    images, convert = TypedImages(pa.struct([("n", kind)])), converter(kind)

    for each in digits:
        (row,) = images.column([Raw(b'{"n":{"N":"%b"}}' % each.encode())]).to_pylist()
        (value,) = pa.array([convert({"N": each})], kind).to_pylist()
        assert repr(row["n"]) == repr(value), each


def encoded(image: dict[str, Any], *columns: Any, **more: str) -> dict[str, Any]:
    """The row of one change with this image, as a query with an imageSchema has it."""
    given = {"stream": "orders", "imageSchema": "…", "columns": f"new_image,{RESCUED}", **more}
    schema = pa.schema([("new_image", pa.struct(columns)), (RESCUED, pa.string())])
    (record,) = msgspec.json.decode(body([1]))["Records"]
    record["dynamodb"] |= {"Keys": {"pk": image["pk"]}, "NewImage": image}
    page = Page(0, 1, "0", msgspec.json.encode({"Records": [record]}))
    (row,) = ArrowEncoder(parse(given, streaming=True), schema).encode(page, "a").to_pylist()
    found: dict[str, Any] = row
    return found


PK = ("pk", pa.string())


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (pa.int64(), {"N": "1.25"}),
        (pa.int64(), {"N": "1" * 20}),
        (pa.int64(), {"S": "12"}),
        (pa.decimal128(5, 2), {"N": "1.125"}),
        (pa.float64(), {"BOOL": True}),
        (pa.bool_(), {"S": "true"}),
        (pa.timestamp("us", tz="UTC"), {"S": "soon"}),
        (pa.binary(), {"S": "AAE="}),
        (pa.list_(pa.string()), {"S": "a"}),
        (pa.list_(pa.int64()), {"L": [{"N": "1"}, {"S": "2"}]}),
        (pa.map_(pa.string(), pa.int32()), {"M": {"a": {"N": "1"}, "b": {"N": "0.5"}}}),
        (pa.struct([("zip", pa.int32())]), {"M": {"zip": {"S": "3511"}}}),
    ],
)
def test_what_does_not_fit_its_column_is_kept_in_another(kind: pa.DataType, value: Any) -> None:
    row = encoded({"pk": {"S": "a"}, "qty": value}, PK, ("qty", kind))

    assert json.loads(row[RESCUED]) == {"new_image": {"qty": value}}
    assert row["new_image"]["pk"] == "a"
    for fitting in ({"pk": {"S": "a"}}, {"pk": {"S": "a"}, "qty": {"NULL": True}}):
        assert encoded(fitting, PK, ("qty", kind))[RESCUED] is None


def test_what_has_no_column_is_kept_where_all_is_to_be() -> None:
    image = {"pk": {"S": "a"}, "more": {"N": "1"}, "at": {"M": {"x": {"N": "1"}, "y": {"N": "2"}}}}
    columns = PK, ("at", pa.struct([("x", pa.int32())]))

    assert encoded(image, *columns)[RESCUED] is None, "left out, as was asked for"
    kept = json.loads(encoded(image, *columns, rescuedData="all")[RESCUED])
    assert kept == {"new_image": {"more": image["more"], "at": image["at"]}}


@pytest.mark.parametrize(
    ("kind", "value", "text"),
    [
        (pa.int32(), {"S": "7"}, "the key pk has DynamoDB's type S, and int32 holds none of those"),
        (pa.binary(), {"N": "7"}, r"make it decimal\(38,0\), or string"),
        (pa.bool_(), {"B": "AAE="}, "make it binary"),
    ],
)
def test_a_key_of_another_type_is_an_error(kind: pa.DataType, value: Any, text: str) -> None:
    with pytest.raises(UsageError, match=text):
        encoded({"pk": value}, ("pk", kind))


def test_an_emulator_s_values_are_read_all_the_same() -> None:
    images = TypedImages(KIND)
    raws = [Raw(b'{"text": {"S": 7}, "big": {"N": "5"}}'), Raw(b"")]
    nulls = [Raw(b'{"text": null, "big": {"N": "5"}, "tags": {"SS": null}}'), Raw(b"")]

    for first, none in (images.column(raws).to_pylist(), images.column(nulls).to_pylist()):
        assert first["big"] == 5
        assert none is None


def test_it_travels_to_an_executor() -> None:
    kind = pa.struct([("n", pa.int32()), ("l", pa.list_(pa.struct([("s", pa.string())])))])
    image = Raw(b'{"n":{"N":"1"},"l":{"L":[{"M":{"s":{"S":"x"}}}]}}')
    there = pickle.loads(pickle.dumps(TypedImages(kind)))
    assert there.column([image]).to_pylist() == [{"n": 1, "l": [{"s": "x"}]}]
