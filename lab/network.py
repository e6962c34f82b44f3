"""One bridge a lab, with addresses of its own and masquerading to the outside."""

from __future__ import annotations

import ipaddress
import json
import subprocess
from pathlib import Path

from lab.machine_requirements import UnsupportedMachine

SUPERNET = ipaddress.IPv4Network("10.77.0.0/16")


def run_program(*command: str, check: bool = True, stdin: str | None = None) -> str:
    """Run a command and return its output; with check, a failure raises with what it said."""
    done = subprocess.run(command, input=stdin, capture_output=True, text=True, check=False)
    if check and done.returncode:
        raise RuntimeError(f"`{' '.join(command)}` failed: {done.stderr.strip()}")
    return done.stdout


def free_subnet() -> ipaddress.IPv4Network:
    """The first /24 of SUPERNET that no interface or route of this machine uses.

    Raises:
        UnsupportedMachine: all 256 are taken.
    """
    routes = json.loads(run_program("ip", "-json", "route", "show", "table", "all") or "[]")
    destinations = [str(route.get("dst", "default")) for route in routes]
    taken = [ipaddress.IPv4Network(d, strict=False) for d in destinations if d != "default" and ":" not in d]
    for subnet in SUPERNET.subnets(new_prefix=24):
        if not any(subnet.overlaps(other) for other in taken if other.prefixlen > 8):
            return subnet
    raise UnsupportedMachine(f"every /24 of {SUPERNET} is in use on this machine")


def is_up(bridge: str) -> bool:
    """Whether the bridge is there."""
    return Path(f"/sys/class/net/{bridge}").exists()


def forwarded_nameservers() -> list[str]:
    """This machine's, as seen from another address: systemd-resolved's own stub listens on loopback alone."""
    for path in (Path("/etc/resolv.conf"), Path("/run/systemd/resolve/resolv.conf")):
        lines = path.read_text().splitlines() if path.exists() else []
        found = [line.split()[1] for line in lines if line.startswith("nameserver ")]
        if reachable := [address for address in found if not ipaddress.ip_address(address.split("%")[0]).is_loopback]:
            return reachable
    return []


def create_bridge(bridge: str, subnet: ipaddress.IPv4Network) -> None:
    """Make the bridge, its address (the subnet's first) and the way out."""
    run_program("ip", "link", "add", bridge, "type", "bridge")
    run_program("ip", "address", "add", f"{subnet[1]}/{subnet.prefixlen}", "dev", bridge)
    run_program("ip", "link", "set", bridge, "up")
    Path("/proc/sys/net/ipv4/ip_forward").write_text("1")
    rules = f"""table ip {bridge} {{
        chain out {{
            type nat hook postrouting priority 100;
            ip saddr {subnet} ip daddr != {subnet} masquerade
        }}
    }}"""
    run_program("nft", "-f", "-", stdin=rules)


def remove_bridge(bridge: str) -> None:
    """Take the bridge and its rules away; missing ones are no error."""
    run_program("ip", "link", "delete", bridge, check=False)
    run_program("nft", "delete", "table", "ip", bridge, check=False)


def create_namespace(bridge: str, namespace: str, address: str, gateway: str) -> None:
    """Make a network namespace whose `host0` has its address before anything boots in it."""
    run_program("ip", "netns", "add", namespace)
    run_program("ip", "link", "add", namespace, "type", "veth", "peer", "name", "host0", "netns", namespace)
    run_program("ip", "link", "set", namespace, "master", bridge, "up")
    run_program("ip", "-n", namespace, "address", "add", address, "dev", "host0")
    run_program("ip", "-n", namespace, "link", "set", "lo", "up")
    run_program("ip", "-n", namespace, "link", "set", "host0", "up")
    run_program("ip", "-n", namespace, "route", "add", "default", "via", gateway)


def remove_namespace(namespace: str) -> None:
    """Take a host's namespace and link away; missing ones are no error."""
    run_program("ip", "netns", "delete", namespace, check=False)
    run_program("ip", "link", "delete", namespace, check=False)
