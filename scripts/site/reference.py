"""The site's page of everything there is, from the code."""

from __future__ import annotations

from collections.abc import Iterator


def text() -> str:
    """The whole page."""
    return "\n".join([*_commands(), *_spark(), *_metrics(), ""])


def _commands() -> Iterator[str]:
    from watcher.cli import help as pages
    from watcher.cli.command_line import CommandLine
    from watcher.cli.commands import COMMANDS

    yield "# Reference"
    yield "\n## Commands"
    for name in COMMANDS:
        if name != "help":
            yield f"\n### {name}\n\n```text\n{pages.page(CommandLine(name), 'all').rstrip()}\n```"


def _spark() -> Iterator[str]:
    from watcher.spark.columns import columns
    from watcher.spark.options import parse

    yield "\n## Columns of the Spark source\n\n| column | type |\n| --- | --- |"
    options = parse({"stream": "orders", "changedAttributes": "true"}, streaming=False)
    for name, kind in columns(options).items():
        yield f"| `{name}` | {kind} |"
    yield "\nWhat its options mean: [on Spark](spark.md#in-your-own-program)."


def _metrics() -> Iterator[str]:
    from watcher.observability.http_server import PrometheusCollector
    from watcher.observability.instruments import LatestMetrics, VerifyMetrics

    yield "\n## Metrics\n\n| metric | type | |\n| --- | --- | --- |"
    for metrics in (LatestMetrics(), VerifyMetrics()):
        for each in PrometheusCollector(metrics).collect():
            name = f"{each.name}_total" if each.type == "counter" else each.name
            yield f"| `{name}` | {each.type} | {each.documentation} |"
