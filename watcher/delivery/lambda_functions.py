"""Runs AWS Lambda functions unchanged: with Lambda's event, context and answer.

https://docs.aws.amazon.com/lambda/latest/dg/with-ddb.html
"""

import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

from watcher.declared import Opt, declares_options
from watcher.delivery.callables import check_answer, unfit
from watcher.delivery.handler_modules import function
from watcher.errors import UsageError

# See watching.py: the command line reads the declaration alone.
if TYPE_CHECKING:
    from watcher.delivery.handler import Handler
    from watcher.records.record import Record

_ARGUMENTS = ("event", "context")
_FUNCTION_SECONDS = 900.0
"""Lambda's time limit, which the context reports; nothing here ends a function."""


_BatchSize = Annotated[
    int, Opt("call it with up to N records of a shard at once; default 100", "N", "lambda")
]
_BatchWindow = Annotated[
    float, Opt("wait this long for a full batch; default 0: no wait", "SECONDS", "lambda")
]


class BadAnswerError(Exception):
    """A function's answer has `batchItemFailures` that name no record of the batch."""


@declares_options
def lambda_function(
    handler: str | Callable[[dict[str, Any], Any], Any],
    *,
    batch_size: _BatchSize = 100,
    batch_window: _BatchWindow = 0.0,
) -> "Handler":
    """Returns a handler that calls a Lambda function, `handler(event, context)`, batch by batch.

    `handler` is the function, or its name as Lambda has it (`app.handler`, or `app:handler`). A
    checkpoint never passes a record whose batch has neither succeeded nor been given up. Raises
    UsageError.
    """
    from watcher.delivery.batches import Batches

    if isinstance(handler, str):
        name, called = handler, _imported(handler)
    else:
        name, called = str(getattr(handler, "__name__", repr(handler))), handler
        if reason := unfit(handler, *_ARGUMENTS):
            raise UsageError(f"{name} {reason}")
    return Batches(name, partial(_call, name, called), batch_size, batch_window)


def _imported(name: str) -> Callable[..., object]:
    module, dot, attribute = name.rpartition(".")
    if not dot and ":" not in name:
        raise UsageError(f"{name or repr(name)}: give MODULE.FUNCTION, such as app.handler")
    return function(name if ":" in name else f"{module}:{attribute}", *_ARGUMENTS)


class Context:
    """The context that Lambda passes to a function beside its event."""

    function_version = "$LATEST"
    memory_limit_in_mb = "128"
    identity = None
    client_context = None

    def __init__(self, function_name: str, region: str, account: str) -> None:
        import uuid  # not for help, nor for other handlers

        self.aws_request_id = str(uuid.uuid4())
        self.function_name = function_name
        self.invoked_function_arn = f"arn:aws:lambda:{region}:{account}:function:{function_name}"
        self.log_group_name = f"/aws/lambda/{function_name}"
        self.log_stream_name = time.strftime("%Y/%m/%d/[$LATEST]") + uuid.uuid4().hex
        self._end = time.monotonic() + _FUNCTION_SECONDS

    def get_remaining_time_in_millis(self) -> int:
        """Returns the rest of Lambda's 15 minutes; no function is stopped after them."""
        return max(0, int((self._end - time.monotonic()) * 1000))


def _call(name: str, handler: Callable[..., object], records: "Sequence[Record]") -> int:
    """Calls a function with a shard's records; returns how many at the start succeeded."""
    event = {"Records": [lambda_record(record) for record in records]}
    region, account = [*records[0].stream.split(":"), "", "", "", "", ""][3:5]
    function_name = name.replace(":", ".").rpartition(".")[2]
    answer = handler(event, Context(function_name, region, account))
    check_answer(answer)
    return processed(answer, [record.sequence_number for record in records])


def lambda_record(record: "Record") -> dict[str, Any]:
    """Returns a record exactly as Lambda puts it into an event.

    That is the wire's JSON (numbers of seconds, base64 text) with the stream's ARN.
    """
    import msgspec  # not for --help, which shows this module's options

    from watcher.aws.json_text import read

    event: dict[str, Any] = read(msgspec.json.Decoder(), record.raw)
    if isinstance(who := event.get("userIdentity"), dict):
        event["userIdentity"] = {name[:1].lower() + name[1:]: who[name] for name in who}
    event["eventSourceARN"] = record.stream
    return event


def processed(answer: object, numbers: Sequence[str]) -> int:
    """Returns the number of processed records at a batch's start, by the function's answer.

    That is all of them, or those before the first that `batchItemFailures` names. Raises
    BadAnswerError where it names a record that is not in the batch: all have failed.
    """
    failures = answer.get("batchItemFailures") if isinstance(answer, dict) else None
    if not failures:
        return len(numbers)
    places = {number: place for place, number in enumerate(numbers)}
    try:
        return min(places[failure["itemIdentifier"]] for failure in failures)
    except (KeyError, TypeError, IndexError):
        text = f"batchItemFailures has to name sequence numbers of the batch: {failures!r:.200}"
        raise BadAnswerError(text) from None
