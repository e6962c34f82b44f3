"""The gate of `rollout` and `switch` for an instance on demand: the residency service loads it once."""

from pathlib import Path
from typing import Any

import pytest

from checks.connections import ConnectedHost, HostReadFailed
from cli.rollout_steps import BoxSteps
from cli.switch import find_verification_fault
from rigwright.operate.capability_probes import ProbeFinding
from tests.unit.samples import sample_instance
from tests.unit.weight_host import WeightHost

# stands in for the residency service's program: writes down its words, and ends as a test has set
PROGRAM = """
import pathlib, sys
folder = pathlib.Path(sys.argv[0])
(folder / "words").write_text(" ".join(sys.argv[1:]))
text = (folder / "refusal").read_text() if (folder / "refusal").exists() else ""
print(text)
sys.exit(1 if text else 0)
"""


class SleepingBox(ConnectedHost):
    """A box whose one instance is asleep."""

    def run_and_parse(self, parse: Any, script: str, limit: float = 0.0) -> Any:
        try:
            return parse(self.target.run_script(script).stdout.splitlines())
        except ValueError as error:
            raise HostReadFailed(str(error)) from None


@pytest.fixture
def host(tmp_path: Path) -> WeightHost:
    host = WeightHost(tmp_path)
    (host.config / "current/residency").mkdir()
    (host.config / "current/residency/__main__.py").write_text(PROGRAM)
    return host


def judge(host: WeightHost) -> tuple[str, list[ProbeFinding]]:
    found: list[ProbeFinding] = []
    box = SleepingBox("one", host.rig_with(sample_instance("code", start="on-demand")), host)
    return find_verification_fault(box, ["code"], lambda box, instance, finding: found.append(finding)), found


def test_one_that_sleeps_is_loaded_once(host: WeightHost) -> None:
    fault, (finding,) = judge(host)
    assert fault == ""
    assert finding.verdict == "ok"
    words = (host.config / "current/residency/words").read_text()
    assert words == f"{host.config}/current/residency.json prove code"


def test_one_that_cannot_be_loaded_fails_with_the_reason(host: WeightHost) -> None:
    (host.config / "current/residency/refusal").write_text("code: its engine ended with status 3")
    fault, (finding,) = judge(host)
    assert fault.endswith("fails: it is loaded on demand and answers: code: its engine ended with status 3")
    assert finding.verdict == "fail"


def test_a_host_without_the_service_fails(host: WeightHost) -> None:
    (host.config / "current/residency/__main__.py").unlink()
    assert "can't find '__main__' module" in judge(host)[0]


def test_its_speed_is_not_measured(host: WeightHost, capsys: pytest.CaptureFixture[str]) -> None:
    box = SleepingBox("one", host.rig_with(sample_instance("code", start="on-demand")), host)
    assert BoxSteps("rig.py", "deploy")._find_speed_fault(box) == ""
    assert capsys.readouterr().out == "one: speed of code not measured: it is loaded on demand\n"
