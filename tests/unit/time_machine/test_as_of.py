"""What was it: equal to a ledger at any second, whoever writes meanwhile."""

from collections.abc import Iterator
from datetime import UTC, datetime
from unittest import mock

import msgspec
import pytest

from tests.ledger.ledger import DisturbedTables, Ledger, by_key
from watcher.aws.tables import Description
from watcher.errors import DataLossError, StreamError, UsageError
from watcher.records.record import Record
from watcher.time_machine.as_of import items_as_of
from watcher.time_machine.item_keys import ItemKey


def moment(second: int) -> datetime:
    return datetime.fromtimestamp(second, UTC)


@pytest.mark.proof
@pytest.mark.parametrize("seed", [0, 2])
def test_any_second_is_as_the_ledger_has_it_while_others_write(seed: int) -> None:
    with Ledger(seed) as ledger:
        ledger.write(300)
        began = ledger.second
        ledger.write(600)
        chosen = sorted(ledger.random.randint(began, ledger.second) for _ in range(5))
        for second in chosen:
            # Old ones are read before the scan, too.
            ledger.clock.sleep(ledger.random.choice([0, 0, 13 * 3600 / 5]))
            tables = DisturbedTables(ledger, lambda: ledger.write(7))
            found = items_as_of(ledger.sources(tables), moment(second))
            assert by_key(found) == ledger.at(second)
            key = ledger.any_key()
            one = items_as_of(ledger.sources(), moment(second), ItemKey({"pk": key}))
            assert by_key(one) == {
                name: item for name, item in ledger.at(second).items() if name == key
            }


def test_what_can_t_be_told_is_refused(ledger: Ledger) -> None:
    ledger.write(10)
    ledger.settle()
    second = ledger.second
    with pytest.raises(UsageError, match="in the future"):
        items_as_of(ledger.sources(), moment(second + 100))
    with pytest.raises(UsageError, match="is before what orders holds, which begins"):
        items_as_of(ledger.sources(), moment(second - 3600))
    ledger.clock.sleep(30 * 3600)
    ledger.write(10)
    with pytest.raises(UsageError, match="is before what orders holds"):
        items_as_of(ledger.sources(), moment(second))


def test_a_time_that_leaves_retention_during_the_reading_is_refused(ledger: Ledger) -> None:
    ledger.write(50)
    second = ledger.second
    ledger.write(10)
    ledger.clock.sleep(24 * 3600 - 5)
    sources = ledger.sources()
    reading = sources.records

    def slowly() -> Iterator[Record]:
        for record in reading():
            ledger.clock.sleep(1)
            yield record

    with mock.patch.object(sources, "records", slowly), pytest.raises((UsageError, DataLossError)):
        items_as_of(sources, moment(second))


@pytest.mark.parametrize("view_type", ["NEW_IMAGE", "KEYS_ONLY"])
def test_a_stream_without_old_images_is_refused(view_type: str, ledger: Ledger) -> None:
    ledger.simulator.enable_new_stream(view_type=view_type)
    ledger.write(5)
    with pytest.raises(StreamError, match=f"view type is {view_type}"):
        items_as_of(ledger.sources(), moment(ledger.second))


def test_old_images_alone_are_enough(ledger: Ledger) -> None:
    ledger.simulator.enable_new_stream(view_type="OLD_IMAGE")
    ledger.write(50)
    second = ledger.second
    ledger.write(50)
    assert by_key(items_as_of(ledger.sources(), moment(second))) == ledger.at(second)


def test_a_stream_that_is_disabled_is_refused(ledger: Ledger) -> None:
    ledger.write(5)
    second = ledger.second
    ledger.settle()
    ledger.simulator.disable_stream()
    with pytest.raises(StreamError, match="disabled or deleted"):
        items_as_of(ledger.sources(), moment(second))


class TablesMadeAnew(DisturbedTables):
    """Describes each table as made now."""

    def named(self, arn: str) -> tuple[str, Description]:
        name, description = super().named(arn)
        return name, msgspec.structs.replace(description, created=moment(self.ledger.second))


def test_a_table_that_was_made_anew_is_refused(ledger: Ledger) -> None:
    ledger.write(5)
    second = ledger.second
    ledger.settle()
    with pytest.raises(StreamError, match="was deleted and created again"):
        items_as_of(ledger.sources(TablesMadeAnew(ledger)), moment(second))
