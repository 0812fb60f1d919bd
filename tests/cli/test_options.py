"""What people try who know other tools, and what they are told."""

from pathlib import Path

import pytest

from watcher.cli import COMMANDS, main, options, watch

TRIED = {
    # kubectl, stern
    "--since=1h": None,
    "-f": None,
    "--tail=10": "--from",
    "-o json": None,
    "-l app=x": "--filter",
    "--timestamps": "--print-summary",
    "--exclude x": "--filter",
    "--no-follow": None,
    # kcat, Kafka's tools
    "-c 10": "--max-records",
    "-e": "--no-follow",
    "-J": "--print-json",
    "--from-beginning": "--from trim-horizon",
    "--max-messages 5": None,
    "--group g": "--checkpoint",
    # the aws CLI
    "--query x": None,
    "--output json": None,
    "--max-items 5": None,
    "--start-time 1h": None,
    "--end-time now": "--no-follow",
    "--filter-pattern x": "--filter",
    "--no-cli-pager": "nothing",
    "--debug": None,
    "--maximum-batching-window-in-seconds 5": "--batch-window",
    "--maximum-retry-attempts 3": "--retries",
    "--bisect-batch-on-function-error": "--bisect",
    "--maximum-record-age-in-seconds 60": "--max-age",
    "--dead-letter x": "--on-error dead-letter:FILE",
    "--destination-config x": "--on-error dead-letter:FILE",
    "--lambda-handler app.handler": "--lambda",
    "--ca-bundle x": "AWS_CA_BUNDLE",
    "--no-verify-ssl": "AWS_CA_BUNDLE",
    "--table-name orders": "the first word",
    "--profile p": None,
    "--region r": None,
    "--endpoint-url u": None,
    # jq, gh
    "--jq .key": None,
    "--limit 5": None,
    "-L 5": "--max-records",
    "--json": None,
    "-r": "--print-json",
    # all of them
    "-v": None,
    "--quiet": "2>/dev/null",
    "--config x": "WATCHER_CONFIG",
    "--no-color": None,
    "-V": "--version",
}


@pytest.mark.parametrize("words", TRIED)
def test_an_option_of_another_tool_works_or_is_told_its_name_here(
    words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    made = watch.parser([])
    advice = TRIED[words]
    if advice is None:
        assert made.parse_args(["orders", *words.split()])
        return
    with pytest.raises(SystemExit):
        made.parse_args(["orders", *words.split()])
    assert f"here it is {advice}" in capsys.readouterr().err.replace("a variable: ", "")


def test_advice_names_only_what_the_command_has(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["shards", "orders", "--since", "1h"])
    assert "--from" not in capsys.readouterr().err


def test_what_resembles_nothing_is_sent_to_the_help(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        watch.parser([]).parse_args(["orders", "--zzz"])
    assert "unknown --zzz; --help lists what there is" in capsys.readouterr().err


def test_every_command_has_a_parser_of_its_own() -> None:
    package = Path(options.__file__).parent
    assert all((package / f"{name.replace('-', '_')}.py").is_file() for name in COMMANDS)


def test_every_value_that_a_tab_offers_is_one_that_the_option_takes() -> None:
    made = watch.parser([])
    for action in made._actions:
        for value in getattr(action, "values", ()):
            word = value + {"retry:": "3", "dead-letter:": "x"}.get(value, "")
            assert made.parse_args(["orders", action.option_strings[0], word])
