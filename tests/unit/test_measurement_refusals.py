"""Refusals of measurements; probes of the gateway are left out, they are no clients."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from cli import measurement_refusals
from cli.exit_codes import InvalidRequest
from cli.measurement_refusals import refuse_busy
from rigwright.operate.client_target import ClientTarget
from rigwright.problems import format_count
from roles.client import HostClient
from tests.unit.client_host import make_client_host
from tests.unit.model_server import KEY, MODEL, ScriptedModel, run_model_server
from tests.unit.serving_samples import SERVICE, capable_instance


class ProbedModel(ScriptedModel):
    """One that ends another request with each answer, as a probe ends."""

    def answer_chat(self, asked: dict[str, Any]) -> dict[str, Any]:
        self.running -= 1
        return super().answer_chat(asked)


@pytest.mark.parametrize(
    ("kind", "running", "probed", "refused", "asked"),
    [
        (ProbedModel, 1, 1, False, 1),
        (ProbedModel, 3, 2, True, 0),
        (ScriptedModel, 1, 1, True, 1),
        (ProbedModel, 2, 1, True, 0),
        (ProbedModel, 1, 0, True, 0),
        (ProbedModel, 0, 0, False, 0),
        (ProbedModel, 0, 1, False, 1),
    ],
)
def test_one_request_that_ends_like_a_probe_keeps_no_measurement_out(
    kind: type[ScriptedModel],
    running: int,
    probed: int,
    refused: bool,
    asked: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (tmp_path / "key").write_text(f"{KEY}\n")
    monkeypatch.setattr(measurement_refusals, "count_probing_gateways", lambda *_: probed)
    place = ClientTarget("chat", str(tmp_path / "s"), MODEL, credential=str(tmp_path / "key"))
    host = make_client_host(tmp_path / "host", monkeypatch)
    box: Any = SimpleNamespace(name="box", rig=SimpleNamespace(instances=(), gateway=None))
    model = kind(running=running)
    with run_model_server(model, tmp_path / "s"), HostClient(host, place) as client:
        try:
            probes = refuse_busy(box, capable_instance(), client, str(SERVICE.metrics), beside_others=False)
        except InvalidRequest as error:
            assert refused
            assert f"works on {format_count(running, 'request')} of others" in error.message
        else:
            assert not refused
            assert (probes.gateways if probes else 0) == probed
            assert probes is None or probes.tokens > 0
    assert len({one["messages"][0]["content"] for one in model.asked}) == asked
