"""A check for each thing of a gateway that drifts: red when it is broken, green again after a deploy or its cure."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from lab.hosts import HostSpec
from lab.labs import Lab
from tests.hosts.gateway_box import LAN, Box
from tests.hosts.layers import FirstRun
from tests.hosts.support import deploy, red

pytestmark = [pytest.mark.all_only, pytest.mark.parametrize("release", ["debian-13"], indirect=True)]

FOLDER = "/etc/rigwright/current/gateway"
RELOAD = "systemctl reload rigwright_gateway"
ROUTER = "systemctl restart rigwright_router"
PAIR = "/etc/rigwright/credentials/gateway-office.pem"
SHORT = (
    f"cd /root && openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 3 -subj /CN=x "
    f"-keyout k -out c 2> /dev/null && openssl pkcs8 -topk8 -nocrypt -in k -out p && "
    f'(echo "key $(sha256sum < p | cut -c 1-64)"; cat c p) > {PAIR} && {RELOAD}'
)

# what somebody or something does to the host, the checks that must notice, and the cure beside a deploy
DRIFTS = {
    "a port that somebody else holds": (
        f"systemctl stop rigwright_gateway rigwright_gateway-{LAN}.socket; systemd-run -q --unit=foreign "
        f"--socket-property=ListenStream=0.0.0.0:{LAN} --socket-property=Accept=yes true",
        {"D01", "D02", "D04", "D05", "D07", "P01"},
        "systemctl stop foreign.socket",
    ),
    "settings that were changed, and taken": (
        f"sed -i 's/keepalive_timeout 60s/keepalive_timeout 61s/' {FOLDER}/nginx.conf; {RELOAD}",
        {"D02", "G01"},
        "",
    ),
    "a sandbox with a hole": (
        "mkdir -p /etc/systemd/system/rigwright_router.service.d && printf '[Service]\\nPrivateUsers=no\\n"
        "PrivateNetwork=no\\nSystemCallFilter=\\nSystemCallFilter=@system-service @privileged @mount @debug\\n"
        "RestrictNamespaces=no\\nNoNewPrivileges=no\\nProtectKernelTunables=no\\nProtectKernelModules=no\\n"
        "PrivateDevices=no\\nDevicePolicy=auto\\nProtectClock=no\\n' "
        "> /etc/systemd/system/rigwright_router.service.d/hole.conf; systemctl daemon-reload",
        {"D02", "D03"},
        "rm -r /etc/systemd/system/rigwright_router.service.d; systemctl daemon-reload",
    ),
    "a listener that asks nobody for a key": (
        f'perl -0pi -e \'s/("office": \\{{\\s*"keys": )true/$1false/\' {FOLDER}/settings.json; {ROUTER}',
        {"D02", "D04", "G01"},
        "",
    ),
    "another name for an alias": (
        f'sed -i \'s/"gpt-4o"/"gpt-4x"/\' {FOLDER}/settings.json; {ROUTER}',
        {"D02", "D07", "G01"},
        "",
    ),
    "a path of engines that is open": (
        f"sed -i 's/return answers.unknown()/return ngx.exit(200)/' {FOLDER}/gateway.lua; {RELOAD}",
        {"D02", "D05", "G01"},
        "",
    ),
    "a certificate that is about to end": (SHORT, {"D06"}, ""),
    "an instance that is not offered": (
        "rm /run/rigwright/gateway/chat2",
        {"D08"},
        "systemctl restart rigwright-chat2",
    ),
    "keys of engines that anybody can read": ("chmod o+r /run/rigwright_gateway/engine-keys.json", {"D09"}, RELOAD),
    "a log that nobody puts away": ("rm /etc/logrotate.d/rigwright_gateway", {"D10"}, ""),
    "a log that nobody puts away any more": (
        "systemctl stop logrotate.timer",
        {"D10"},
        "systemctl start logrotate.timer",
    ),
}


@pytest.fixture(scope="module")
def box(lab: Lab, release: str, first_run: FirstRun, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Box]:
    """A host as declared."""
    (host,) = lab.up([HostSpec(f"gd{release[-2:]}", release, (first_run.layer,))])
    made = Box(lab, host, tmp_path_factory.mktemp("gateway"))
    made.prepare()
    run = deploy(made.inventory())
    assert run.status == 0, run.said
    yield made
    host.destroy()


@pytest.mark.parametrize("drift", DRIFTS)
def test_what_drifts_is_red_and_a_deploy_or_the_cure_puts_it_right(box: Box, drift: str) -> None:
    broken, expected, cure = DRIFTS[drift]
    inventory = box.inventory()
    box.host.run(broken)
    found = red(inventory)
    if cure:
        box.host.run(cure)
    run = deploy(inventory)
    assert run.status == 0, run.said
    assert (found, red(inventory)) == (expected, set())
