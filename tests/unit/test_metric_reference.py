"""The reference of metrics has exactly the names that Rigwright's programs export."""

import re

from cli.metric_reference import METRICS
from rigwright.project_root import ROOT

EXPORTED = {
    "rigwright/monitoring/textfile.py": r'"(?:# TYPE )?(rigwright_[a-z_]+)[ "]',
    "roles/self_check/host/run.py": r"# TYPE (rigwright_[a-z_]+)",
    "roles/pull/host/run.py": r'"# TYPE (rigwright_pull_[a-z_]+)',
    "roles/monitoring/host/gpu.py": r'"(rigwright_gpu[a-z_]+)"',
    "roles/residency/host/ledger_file.py": r'"(rigwright_residency_[a-z_]+)",',
    "templates/gateway/telling.lua": r'(?:totals|sample)\(lines, "([a-z_]+)"|\{ "[a-z_]+", "([a-z_]+)" \}',
}
"""Program -> what stands around the name of a metric there."""


def test_the_reference_has_each_exported_metric_and_no_other() -> None:
    exported = set()
    for path, pattern in EXPORTED.items():
        found = {"".join(one) for one in re.findall(pattern, (ROOT / path).read_text())}
        assert found, path
        exported |= {name if name.startswith("rigwright_") else f"rigwright_gateway_{name}" for name in found}
    assert sorted(name for name, *_ in METRICS) == sorted(exported)
