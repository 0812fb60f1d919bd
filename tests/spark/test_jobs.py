"""The other jobs, on the shared Spark."""

import re
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark")

from tests.simulator import Simulator
from tests.support import wire
from tests.support.hostile_text import HOSTILE, refuse_steering
from watcher.aws.config import AwsConfig
from watcher.errors import DataLossError, WatcherError

pytestmark = pytest.mark.spark


def here(sim: Simulator) -> AwsConfig:
    return AwsConfig("us-east-1", None, sim.endpoint)


def test_query_prints_a_table_json_and_csv(
    spark: Any, sim: Simulator, capsys: pytest.CaptureFixture[str]
) -> None:
    from watcher.spark.jobs import query

    sim.put({"pk": {"S": "a\x1b[31m"}, "v": {"N": "1"}})
    sim.put({"pk": {"S": "b"}, "v": {"N": "2"}})
    sim.put({"pk": {"S": "c"}, "v": {"N": "1" * 38}})
    sql = "SELECT event_name, new_image:pk::string, changed_attributes, new_image:v FROM (SELECT"
    sql += " event_name, parse_json(new_image) new_image, changed_attributes FROM changes)"
    sql += " ORDER BY 2"
    for output in ("table", "json", "csv"):
        assert query(sim.stream_arn, sql, output=output, connection=here(sim), spark=spark) == 3
    text = capsys.readouterr().out

    assert "\x1b" not in text.splitlines()[2], "a table is for terminals"
    assert '"event_name":"INSERT"' in text
    assert 'INSERT,b,"[""pk"",""v""]",2' in text.splitlines()
    assert text.count("1" * 38) == 3, "a variant has all digits"

    parts = "SELECT array(named_struct('a', x'0001', 'b', null)) s, x'0001' x, map(1, array(2)) m"
    for output in ("table", "csv"):
        query(sim.stream_arn, parts, output=output, connection=here(sim), spark=spark)
        text = capsys.readouterr().out.splitlines()[-1]
        assert text.replace('""', '"').count('[{"a":"AAE=","b":null}]') == 1, "parts have names"
        assert "AAE=," in text or "AAE= " in text
        assert text.replace('""', '"').count('{"1":[2]}') == 1

    sql = "SELECT '=1+1' a, -5 b FROM changes LIMIT 1"
    query(sim.stream_arn, sql, output="csv", connection=here(sim), spark=spark)
    assert capsys.readouterr().out.splitlines() == ["a,b", "'=1+1,-5"]


def test_a_query_agrees_with_the_forms_that_a_watch_prints(
    spark: Any, sim: Simulator, capsys: pytest.CaptureFixture[str]
) -> None:
    from watcher.spark.jobs import query

    for change in wire.odd_changes():
        sim.append(change)
    sql = "SELECT event_name, user_identity.type, new_image, old_image FROM changes ORDER BY"
    for output in ("table", "json", "csv"):
        rows = query(
            sim.stream_arn,
            f"{sql} sequence_number",
            output=output,
            connection=here(sim),
            spark=spark,
        )
        text = capsys.readouterr().out.replace("\\", "")
        assert rows == 3
        assert [each for each in wire.ODD_VALUES if not re.search(each, text)] == []
        assert re.search(r"REMOVE\W+(type\W+)?Service", text)


@pytest.mark.proof
def test_nothing_that_a_query_prints_steers_a_terminal(
    spark: Any, sim: Simulator, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from watcher.spark.jobs import query

    sim.put({"pk": {"S": HOSTILE}, "v": {"N": "1"}, HOSTILE: {"S": HOSTILE}})
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "200")  # a narrow one would cut the text off
    sql = "SELECT keys:pk::string p, changed_attributes, new_image n FROM (SELECT"
    sql += " parse_json(keys) keys, changed_attributes, new_image FROM changes)"
    for output in ("table", "json", "csv"):
        assert query(sim.stream_arn, sql, output=output, connection=here(sim), spark=spark) == 1
        text = capsys.readouterr().out
        assert "hidden" in text
        refuse_steering(text)


def test_sql_that_is_wrong_is_one_line(spark: Any, sim: Simulator) -> None:
    from watcher.spark.jobs import query

    sim.bulk(3)
    for sql, text in (
        ("SELECT nothing FROM changes", "nothing"),
        ("SELECT cast(event_name AS int) FROM changes", "CAST_INVALID_INPUT"),
    ):
        with pytest.raises(WatcherError) as error:
            query(sim.stream_arn, sql, connection=here(sim), spark=spark)
        assert "\n" not in str(error.value)
        assert text in str(error.value)


def test_data_loss_is_the_job_s_own_error(spark: Any, sim: Simulator, tmp_path: Path) -> None:
    from watcher.spark.jobs import archive

    def once() -> None:
        archive(
            sim.stream_arn, to=str(tmp_path / "lake"), once=True, connection=here(sim), spark=spark
        )

    sim.bulk(100, keys=5)
    sim.advance(2)
    once()
    sim.bulk(100, keys=5)
    sim.trim(150)

    with pytest.raises(DataLossError, match=r"^DATA LOSS: shard shardId-\S+ from sequence number"):
        once()
