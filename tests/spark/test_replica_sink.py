"""Changes as writes, and the writes' retries."""

from collections.abc import Callable
from typing import Any

import pytest

pytest.importorskip("pyspark")

from botocore.exceptions import ClientError

from watcher.aws import tables
from watcher.aws.config import AwsConfig
from watcher.aws.tables import TablesClient, for_task
from watcher.errors import StreamError
from watcher.spark.jobs.replicate import last_writes

A, B = '{"pk":{"S":"a"}}', '{"pk":{"S":"b"}}'


def test_of_an_item_s_changes_the_last_one_counts() -> None:
    names = ["INSERT", "INSERT", "MODIFY", "REMOVE"]
    images = ['{"pk":{"S":"a"}}', B, '{"pk":{"S":"a"},"v":{"N":"2"}}', None]

    writes = last_writes(names, [A, B, A, B], images)

    assert writes == [
        {"PutRequest": {"Item": {"pk": {"S": "a"}, "v": {"N": "2"}}}},
        {"DeleteRequest": {"Key": {"pk": {"S": "b"}}}},
    ]


def test_an_item_is_the_same_whatever_the_order_of_its_keys() -> None:
    keys = ['{"pk":{"S":"a"},"sk":{"B":"AA=="}}', '{"sk":{"B":"AA=="},"pk":{"S":"a"}}']

    writes = last_writes(["REMOVE", "REMOVE"], keys, [None, None])

    assert writes == [{"DeleteRequest": {"Key": {"pk": {"S": "a"}, "sk": {"B": b"\x00"}}}}]


def test_an_item_is_the_same_whatever_the_text_of_its_number() -> None:
    keys = ['{"id":{"N":"1"}}', '{"id":{"N":"1.0"}}']
    images: list[str | None] = [f'{{"id":{{"N":"1"}},"v":{{"N":"{number}"}}}}' for number in (1, 2)]

    writes = last_writes(["INSERT", "MODIFY"], keys, images)

    assert writes == [{"PutRequest": {"Item": {"id": {"N": "1"}, "v": {"N": "2"}}}}]


class Refusing:
    """A client whose first answers leave writes undone."""

    def __init__(self, refusals: int) -> None:
        self.refusals = refusals
        self.asked: list[int] = []

    def batch_write_item(self, RequestItems: dict[str, Any]) -> dict[str, Any]:
        writes = RequestItems["copy"]
        self.asked.append(len(writes))
        if len(self.asked) > self.refusals:
            return {}
        return {"UnprocessedItems": {"copy": writes[1:]}}


def made(client: Any, make: Callable[[AwsConfig], TablesClient] = TablesClient) -> TablesClient:
    for_task.cache_clear()
    tables_ = make(AwsConfig("us-east-1", None, "http://localhost:1"))
    tables_.api = client
    return tables_


def refusal(code: str, status: int, message: str = "no") -> ClientError:
    error = {
        "Error": {"Code": code, "Message": message},
        "ResponseMetadata": {"HTTPStatusCode": status},
    }
    return ClientError(error, "BatchWriteItem")  # type: ignore[arg-type]


def test_unprocessed_writes_are_done_in_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("time.sleep", lambda seconds: None)
    client = Refusing(3)

    made(client).write("copy", [{"DeleteRequest": {}}] * 10)

    assert client.asked == [10, 9, 8, 7]


def test_what_the_service_refuses_for_good_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(**query: Any) -> Any:
        raise refusal("ValidationException", 400, "too large")

    client = Refusing(0)
    client.batch_write_item = refuse  # type: ignore[method-assign,assignment]

    with pytest.raises(StreamError, match="too large"):
        made(client).write("copy", [{"DeleteRequest": {}}])
    assert tables.BATCH == 25


@pytest.mark.parametrize(
    ("code", "status"),
    [("403", 403), ("ExpiredTokenException", 400), ("AccessDeniedException", 400)],
)
@pytest.mark.parametrize("has_worked", [True, False])
@pytest.mark.parametrize("in_task", [True, False])
def test_what_may_pass_ends_no_copy_once_it_has_worked(
    monkeypatch: pytest.MonkeyPatch, code: str, status: int, has_worked: bool, in_task: bool
) -> None:
    """In a task it is the driver that has; of a denial, only that call."""
    monkeypatch.setattr("time.sleep", lambda seconds: None)
    answers: list[Any] = [{}] if has_worked else []
    answers += [refusal(code, status)] * 3 + [{}]

    def batch_write_item(**query: Any) -> Any:
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    client = Refusing(0)
    client.batch_write_item = batch_write_item  # type: ignore[method-assign,assignment]
    table = made(client, for_task if in_task else TablesClient)
    if has_worked:
        table.write("copy", [{"DeleteRequest": {}}])
    if has_worked or (in_task and code != "AccessDeniedException"):
        table.write("copy", [{"DeleteRequest": {}}])
        assert answers == []
    else:
        with pytest.raises(StreamError):
            table.write("copy", [{"DeleteRequest": {}}])
