"""What becomes of packets, by rules that the kernel itself was given, and by those of old."""

import os
import subprocess
from dataclasses import replace

import pytest

from checks.packets.reachability import FilteredHost
from checks.survey import survey_program
from checks.survey.answers import SurveyAnswers
from checks.survey.firewall import FIREWALL, Firewall, InterfaceAddress, NetlinkMessage
from rigwright.model.gateway_schema import Gateway
from rigwright.model.inventory_schema import ShareEntry
from tests.unit.samples import sample_instance, sample_rig

OWN = "10.77.4.11"
AT = [InterfaceAddress("lo", 1, "127.0.0.1", 8), InterfaceAddress("eth0", 2, OWN, 24)]
PRE = "table ip x { chain in { type nat hook prerouting priority -100;"
IN = "table inet x { chain in { type filter hook input priority 0;"
needs_nft = pytest.mark.skipif(
    os.geteuid() != 0
    or subprocess.run(["unshare", "-n", "nft", "list", "ruleset"], capture_output=True).returncode != 0,
    reason="takes nft, in a network of its own",
)


def scenery(told: Firewall) -> FilteredHost:
    gateway = Gateway.model_validate(
        {"listeners": {"lan": {"address": "0.0.0.0", "port": 8000}, "office": {"address": OWN, "port": 8443}}}
    )
    share = ShareEntry(address=OWN, port=8090, allow=("10.77.4.0/24",))
    made = sample_rig(sample_instance(), gateway=gateway, share=share)
    return FilteredHost(made, replace(told, interfaces=AT, ways=["eth0"]))


def ruled(rules: str) -> FilteredHost:
    """With what the kernel tells of rules."""
    question = survey_program.render_survey_program({"firewall": (20.0, {"clients": []})})
    survey = survey_program.COMMAND
    broken = rules.replace(" }", "\n}").replace("; ", "\n")
    script = f"ip link set lo up; nft -f - <<'END' && {survey} <<'PROGRAM'\n{broken}\nEND\n{question}\nPROGRAM\n"
    done = subprocess.run(["unshare", "-n", "sh", "-c", script], capture_output=True, check=False)
    assert not done.stderr, done.stderr
    told = SurveyAnswers(survey_program.parse_answers(done.stdout)).read(FIREWALL)
    # those of this machine itself
    return scenery(replace(told, legacy={}))


def saved(text: str) -> FilteredHost:
    """With what iptables of old has set."""
    return scenery(Firewall([], [], [], [], [], {"iptables": text}, [], {}, [], None))


def test_without_rules_everybody_comes_where_he_wants_to() -> None:
    found = saved("")
    assert [*found.find_redirects(), *found.find_blocked_clients()] == []


@needs_nft
@pytest.mark.parametrize(
    ("rules", "ways"),
    [
        (f"{PRE} tcp dport 9000 redirect to :8000 }} }}", ["9000 goes to 10.77.4.11 port 8000"]),
        (f"{PRE} tcp dport 9000-9002 dnat to 127.0.0.1:8020 }} }}", ["goes to 127.0.0.1 port 8020"]),
        (f"{PRE} dnat to tcp dport map {{ 9100 : {OWN} . 8443 }} }} }}", ["9100 goes to 10.77.4.11 port 8443"]),
        (f"{PRE} ip daddr 192.0.2.7 tcp dport 80 dnat to {OWN}:8000 }} }}", ["192.0.2.7 port 80 goes to"]),
        (f"{PRE} tcp dport 8000 dnat to 192.0.2.7 }} }}", ["8000 goes to 192.0.2.7 port 8000"]),
        (f"{PRE} dnat to 192.0.2.7 }} }}", ["8000 goes to 192.0.2.7"]),
        (
            "table ip x { chain o { type nat hook output priority -100; tcp dport 8020 redirect to :9 } }",
            ["8020 goes to"],
        ),
        # what is others' to do
        (f"{PRE} tcp dport 2222 dnat to 192.168.122.5:22 }} }}", []),
        (
            f"{PRE} fib daddr type local jump d }}\n chain d {{ iifname != d0 tcp dport 80 dnat to 172.17.0.2:80 }} }}",
            [],
        ),
        ("table ip x { chain o { type nat hook postrouting priority 100; masquerade } }", []),
    ],
)
def test_where_packets_are_led(rules: str, ways: list[str]) -> None:
    found = " ".join(ruled(rules).find_redirects())
    assert bool(found) == bool(ways)
    assert all(one in found for one in ways)


ALLOWED = "iif lo accept; ct state established,related accept; "


@needs_nft
@pytest.mark.parametrize(
    ("rules", "ports"),
    [
        (f"{IN} tcp dport 8000 drop }} }}", [8000]),
        (f"{IN} policy drop; {ALLOWED} tcp dport 22 accept }} }}", [8000, 8090, 8443]),
        (f"{IN} tcp dport {{ 8000, 8443 }} reject }} }}", [8000, 8443]),
        (f"{IN} iif lo tcp dport 8020 drop }} }}", [8020]),
        (f"{IN} ip saddr 10.77.4.0/24 tcp dport 8443 drop }} }}", [8443]),
        ("table ip x { chain o { type filter hook output priority 0; tcp sport 8000 drop } }", [8000]),
        ("table ip x { chain o { type filter hook prerouting priority -300; tcp dport 8090 drop } }", [8090]),
        (f"{IN} tcp dport vmap {{ 8443 : jump no }} }}\n chain no {{ counter drop }} }}", [8443]),
        # thought of by somebody
        (f"{IN} policy drop; {ALLOWED} tcp dport {{ 22, 8000-8500 }} accept }} }}", []),
        (f"{IN} policy drop; {ALLOWED} tcp dport 8090 accept; ip saddr 192.0.2.0/24 accept }} }}", []),
        (f"{IN} policy drop; {ALLOWED} ip saddr 10.77.4.0/24 accept }} }}", []),
        (f"{IN} tcp dport 8000 limit rate over 100/second drop }} }}", []),
        (f"{IN} tcp dport 5432 drop; udp dport 8000 drop; ct state invalid drop }} }}", []),
    ],
)
def test_who_is_kept_out(rules: str, ports: list[int]) -> None:
    assert sorted(int(one.split()[1]) for one in ruled(rules).find_blocked_clients()) == ports


@pytest.mark.parametrize(
    ("lines", "led"),
    [
        (["-A PREROUTING -p tcp -m tcp --dport 9800 -j REDIRECT --to-ports 8000"], True),
        (
            ["-A PREROUTING -i eth0 -p tcp -m multiport --dports 9600,97:98 -j DNAT --to-destination 127.0.0.1:8020"],
            True,
        ),
        (
            [
                ":D - [0:0]",
                "-A PREROUTING -m addrtype --dst-type LOCAL -j D",
                "-A D -p tcp --dport 9 -j REDIRECT --to-ports 8000",
            ],
            True,
        ),
        (["-A PREROUTING -p tcp -m tcp --dport 8443 -j DNAT --to-destination 192.0.2.7"], True),
        (["-A PREROUTING -p tcp -m tcp --dport 2222 -j DNAT --to-destination 192.168.1.5:22"], False),
        (["-A PREROUTING -p udp -m udp --dport 9800 -j REDIRECT --to-ports 8000"], False),
        (["-A PREROUTING -i wg0 -p tcp -m tcp --dport 9800 -j REDIRECT --to-ports 8000"], False),
    ],
)
def test_where_rules_of_old_lead(lines: list[str], led: bool) -> None:
    text = "\n".join(["*nat", ":PREROUTING ACCEPT [0:0]", *lines, "COMMIT"])
    assert bool([*saved(text).find_redirects()]) == led


@pytest.mark.parametrize(
    ("lines", "ports"),
    [
        ([":INPUT ACCEPT [0:0]", "-A INPUT -s 10.77.4.0/24 -p tcp -m tcp --dport 8000 -j DROP"], [8000]),
        ([":INPUT ACCEPT [0:0]", "-A INPUT -p tcp -m tcp --dport 8443 -j REJECT --reject-with tcp-reset"], [8443]),
        (
            [
                ":INPUT DROP [0:0]",
                "-A INPUT -i lo -j ACCEPT",
                "-A INPUT -p tcp -m multiport --dports 22,8090 -j ACCEPT",
            ],
            [8000, 8443],
        ),
        (
            [
                ":INPUT DROP [0:0]",
                "-A INPUT -i lo -j ACCEPT",
                "-A INPUT -p tcp -m conntrack --ctstate NEW -m tcp --dport 8000:9000 -j ACCEPT",
            ],
            [],
        ),
        ([":INPUT ACCEPT [0:0]", "-A INPUT ! -i lo -p tcp -m tcp ! --dport 1:65535 -j DROP", "-A INPUT -j LOG"], []),
    ],
)
def test_whom_rules_of_old_keep_out(lines: list[str], ports: list[int]) -> None:
    text = "\n".join(["*filter", *lines, "COMMIT"])
    assert sorted(int(one.split()[1]) for one in saved(text).find_blocked_clients()) == ports


@pytest.mark.parametrize(
    ("lines", "closed"),
    [
        ([":INPUT ACCEPT [0:0]"], False),
        ([":INPUT ACCEPT [0:0]", "-A INPUT -p tcp -m tcp --dport 8000 -j DROP"], False),
        ([":INPUT DROP [0:0]", "-A INPUT -i lo -j ACCEPT", "-A INPUT -p tcp -m tcp --dport 22 -j ACCEPT"], True),
        ([":INPUT DROP [0:0]", "-A INPUT -i eth0 -j ACCEPT"], False),
    ],
)
def test_whether_a_host_is_closed_to_its_neighbours(lines: list[str], closed: bool) -> None:
    assert bool(saved("\n".join(["*filter", *lines, "COMMIT"])).find_default_drop()) == closed
    assert not saved("").find_default_drop()


def test_rules_that_no_kernel_tells_are_refused() -> None:
    with pytest.raises(ValueError, match="unreadable"):
        scenery(Firewall([NetlinkMessage(2, "AAAA")], [], [], [], [], {}, [], {}, [], None))
