"""An operator's information before a switch: the effects on clients, their duration and their reason."""

import pytest

from rigwright.model.gateway_schema import Gateway
from rigwright.serving.standby import describe_downtime
from tests.unit.samples import sample_instance, sample_rig

GATE = Gateway.model_validate({"listeners": {"lan": {"address": "0.0.0.0", "port": 8000, "keys": False}}, "drain": 12})


@pytest.mark.parametrize(
    ("gateway", "seconds", "refused", "said", "never"),
    [
        (GATE, 40.0, "", ["no downtime", "have 12 s to end", "its own port, 8020,"], "503"),
        (GATE, 40.2, "no room", ["about 40 s, the start time", "cannot run at once: no room", "12 s", "503"], "wait"),
        (GATE, None, "no room", ["unknown, because it has no recorded start time"], "about"),
        (None, 3.0, "no gateway", ["about 3 s", "clients of port 8020 wait", "no gateway"], "503"),
    ],
)
def test_effects_on_clients(gateway, seconds, refused, said, never):
    made = sample_rig(sample_instance("chat"), gateway=gateway)
    text = "\n".join(describe_downtime(made.gateway, made.instances[0], seconds, refused))
    assert all(one in text for one in said), text
    assert never not in text
