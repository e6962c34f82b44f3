"""Shipped dashboards: they are the output of `tests.dashboards`, and every figure is a known one."""

import json
import re

import pytest

from rigwright.model.monitoring_schema import AlertThresholds
from rigwright.monitoring.alert_rules import RECORDING_RULES, build_alerts
from tests.dashboards import FOLDER, PAGES


def panels(name: str) -> list[dict[str, object]]:
    """Those of a dashboard."""
    found: list[dict[str, object]] = json.loads((FOLDER / f"{name}.json").read_text())["panels"]
    return found


@pytest.mark.parametrize("name", PAGES)
def test_committed_files_are_made_of_the_declaration(name: str) -> None:
    made = [(one["title"], one["targets"][0]["expr"]) for one in panels(name)]  # type: ignore[index]
    assert made == [(one.title, one.expr) for one in PAGES[name][2]]
    assert all(one["datasource"] == {"type": "prometheus", "uid": "${prometheus}"} for one in panels(name))


def test_no_other_dashboard_lies_there() -> None:
    assert {path.stem for path in FOLDER.iterdir()} == set(PAGES)


def test_our_metrics_on_dashboards_are_computed() -> None:
    texts = [graph.expr for _, _, graphs in PAGES.values() for graph in graphs]
    texts += [one.expr for one in build_alerts(AlertThresholds(ttft_p99_s=1.0))]
    assert set(re.findall(r"rig:\w+:?\w*", " ".join(texts))) == {one.name for one in RECORDING_RULES}
