"""The files in deploy/ say what is so: options, metrics, permissions, ports and times.

Linters that come from PyPI look at them here; `scripts/deploy-checks` has those that do not.
"""

import json
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import kubernetes_validate
import promql_parser
import pytest
import yaml
from prometheus_client import CollectorRegistry

from tests.simulator import Simulator
from watcher import cli
from watcher.cli.command_line import command_line
from watcher.cli.invocation import Invocation
from watcher.observability.metrics import PrometheusCollector
from watcher.observability.watch_stats import WatchStats

pytestmark = pytest.mark.proof

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
DOCKERFILE = (DEPLOY / "Dockerfile").read_text()
UNIT = (DEPLOY / "watcher@.service").read_text()
ECS = json.loads((DEPLOY / "ecs-task.json").read_text())
TASK = ECS["containerDefinitions"][0]
KUBERNETES = {
    each["kind"]: each for each in yaml.safe_load_all((DEPLOY / "kubernetes.yaml").read_text())
}
DEPLOYMENT = KUBERNETES["Deployment"]["spec"]
POD = DEPLOYMENT["template"]["spec"]
CONTAINER = POD["containers"][0]
ALERTS = [
    rule
    for group in yaml.safe_load((DEPLOY / "alerts.yml").read_text())["groups"]
    for rule in group["rules"]
]
DASHBOARD = json.loads((DEPLOY / "grafana.json").read_text())
PORT = 9464


def setting(name: str) -> str:
    """A line of the unit."""
    (value,) = re.findall(rf"^{name}=(.*)$", UNIT, re.MULTILINE)
    return str(value)


def in_the_unit() -> list[str]:
    program, *words = shlex.split(setting("ExecStart").replace("%i", "orders"))
    assert program.endswith("/bin/watcher")
    return words


LINES = {"kubernetes": CONTAINER["args"], "ecs": TASK["command"], "systemd": in_the_unit()}


def parsed(words: list[str]) -> dict[str, Any]:
    """The options as the real command line understands them; it refuses what it does not know."""
    return Invocation(command_line(words)).values


@pytest.mark.parametrize("words", LINES.values(), ids=LINES)
def test_every_command_line_is_one_and_keeps_positions(words: list[str]) -> None:
    values = parsed(words)
    assert words[0] == "orders" and values["checkpoint"] and values["log_format"] == "json"


def test_health_is_asked_for_where_it_is_served() -> None:
    for words in (CONTAINER["args"], TASK["command"]):
        assert parsed(words)["metrics_port"] == f"0.0.0.0:{PORT}"
    assert CONTAINER["ports"] == [{"name": "metrics", "containerPort": PORT}]
    probes = [CONTAINER[f"{kind}Probe"]["httpGet"] for kind in ("startup", "liveness", "readiness")]
    assert [each["path"] for each in probes] == ["/livez", "/livez", "/readyz"]
    assert {each["port"] for each in probes} == {"metrics"}
    (asked,) = set(re.findall(r"urlopen\('(.+?)'", f"{DOCKERFILE} {TASK['healthCheck']}"))
    assert asked == f"http://127.0.0.1:{PORT}/livez"
    for path in {asked.rpartition("/")[2], *(each["path"][1:] for each in probes)}:
        assert path in {"livez", "readyz"}, "see watcher/observability/metrics.py"
    assert DEPLOYMENT["template"]["metadata"]["annotations"]["prometheus.io/port"] == str(PORT)


def test_kubernetes_takes_the_manifest() -> None:
    for each in KUBERNETES.values():
        kubernetes_validate.validate(each, kubernetes_validate.latest_version(), strict=True)


def queries() -> Iterator[str]:
    yield from (rule["expr"] for rule in ALERTS)
    for panel in DASHBOARD["panels"]:
        yield from (target["expr"] for target in panel["targets"])
    for variable in DASHBOARD["templating"]["list"]:
        if variable["type"] == "query":
            yield variable["query"]["query"].removeprefix("label_values(").partition(",")[0]


def test_every_query_is_promql_about_metrics_that_there_are() -> None:
    registry = CollectorRegistry()
    registry.register(PrometheusCollector(WatchStats))
    there = {
        f"{family.name}_total" if family.type == "counter" else family.name
        for family in registry.collect()
    }
    asked = set()
    for query in queries():
        promql_parser.parse(query.replace("$__rate_interval", "5m"))
        asked |= set(re.findall(r"watcher_\w+", query))
    assert asked <= there
    alerted = {name for rule in ALERTS for name in re.findall(r"watcher_\w+", rule["expr"])}
    tested = (DEPLOY / "alerts.test.yml").read_text()
    assert [name for name in alerted if f"'{name}{{" not in tested] == []
    assert [rule["alert"] for rule in ALERTS if tested.count(rule["alert"]) < 2] == []


POLICY = json.loads((DEPLOY / "policy.json").read_text())
ALLOWED = {
    action.removeprefix("dynamodb:") for each in POLICY["Statement"] for action in each["Action"]
}


def run(sim: Simulator, monkeypatch: pytest.MonkeyPatch) -> int:
    """The manifest's own line, to what is there now; and no port that another may have."""
    for name, value in sim.environment.items():
        monkeypatch.setenv(name, value)
    words = [word for word in CONTAINER["args"] if not word.startswith("--metrics-port")]
    return cli.main([*words, "--from=trim-horizon", "--no-follow"])


def test_the_policy_allows_all_that_is_called(monkeypatch: pytest.MonkeyPatch) -> None:
    with Simulator(table="orders") as sim:
        sim.write("a", 3)
        sim.add_table("watcher-positions", 0, key="name")
        assert run(sim, monkeypatch) == 0
        # The table of the positions is there already, and the stream is found by the other's name.
        assert {*sim.calls} == ALLOWED - {"CreateTable"}
