"""Errors name the option to blame, in the words of those who gave it."""

import pickle

import pytest

from watcher.errors import StreamError, UsageError, blame, error_text


def test_a_program_reads_the_parameters_name_and_the_command_line_its_own() -> None:
    error = UsageError("give 1 or more", "max_records", 0)
    assert str(error) == "max_records 0: give 1 or more"
    assert error.blaming("--max-records") == "--max-records 0: give 1 or more"
    assert str(UsageError("can't read 'x'", "start")) == "start: can't read 'x'"
    assert str(UsageError("no such thing")) == "no such thing"


def test_the_option_is_blamed_for_what_is_wrong_with_its_value() -> None:
    with pytest.raises(UsageError, match=r"^start: no such time$"), blame("start"):
        raise UsageError("no such time")
    with pytest.raises(UsageError, match=r"^key x: no"), blame("start"):
        raise UsageError("no", "key", "x")
    with pytest.raises(StreamError, match=r"^gone$"), blame("start"):
        raise StreamError("gone")


def test_an_error_of_another_process_says_the_same() -> None:
    error = pickle.loads(pickle.dumps(UsageError("no", "key", "x")))
    assert (str(error), error.option) == ("key x: no", "key")


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("POST https://host/services/T0/S: 500", "POST https://host/***: 500"),
        ('at "http://me:pw@host:8000/a?key=S"', 'at "http://***@host:8000/***"'),
        ("HTTPS://host?key=S, again", "HTTPS://host/***, again"),
        (
            "HTTPPool(host='host'): Max retries exceeded with url: /v1/metrics?key=S (Caused by X)",
            "HTTPPool(host='host'): Max retries exceeded with url: /*** (Caused by X)",
        ),
        ('endpoint URL: "http://localhost:8000/"', 'endpoint URL: "http://localhost:8000/"'),
        ("s3://bucket/key, sqs://queue, /a/path", "s3://bucket/key, sqs://queue, /a/path"),
    ],
)
def test_of_a_url_in_an_error_of_other_code_the_host_alone_is_shown(text: str, shown: str) -> None:
    assert error_text(RuntimeError(text)) == shown
