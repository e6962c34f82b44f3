"""Other listeners that lead to a rig's models, and the users that reach them past its own listeners."""

from ipaddress import ip_address

from checks import Drift, check, expect
from checks.remedy import STOP_LISTENER, Remedy, host_command, instruction, restart_units
from checks.survey.answers import SurveyAnswers
from checks.survey.client_routes import CLIENT_ROUTES
from checks.survey.service_exposure import REACH, private_folders, socket_units
from rigwright.gateway.secrets_distribution import ROUTER_SOCKET, ROUTER_UNIT
from rigwright.model.accounts import ServiceAccounts
from rigwright.model.gateway_schema import Gateway
from rigwright.model.instance import Instance
from rigwright.model.inventory_schema import ShareEntry
from rigwright.monitoring.monitoring_units import MonitoringService

OTHERS = 0o007


@check(
    "R01",
    "only the declared listeners forward to the rig's models",
    severity="critical",
    why="another listener's clients count as local: no key, no TLS and no limit applies to them",
)
def test_no_other_listener(survey: SurveyAnswers) -> None:
    leads = survey.read(REACH).leads
    if leads:
        raise Drift.combine(
            [
                Drift(
                    "no other listener that leads to the models",
                    f"{one.program} on {one.at}: {one.how}",
                    instruction("stop it, and disable the unit or program that starts it"),
                )
                for one in leads
            ]
        )


@check(
    "R04",
    "no program tunnels the rig's connections",
    severity="critical",
    why="a tunnel exposes a loopback port on another host",
)
def test_no_tunnel(survey: SurveyAnswers) -> None:
    reach = survey.read(REACH)
    # of what listens here, too, the check before tells
    listening = " ".join(f"{one.program} {one.how}" for one in reach.leads)
    found = [f"{one.program}: {one.words}" for one in reach.tunnels if one.program not in listening]
    expect("; ".join(found) or "none", "none", instruction("stop it, and disable the unit or program that starts it"))


@check(
    "R05",
    "only the instance's port and the gateway can open its socket",
    severity="critical",
    why="clients of an open socket need only the key; a replaced socket receives that key",
)
def test_socket(
    survey: SurveyAnswers,
    service_accounts: ServiceAccounts,
    declared_instances: tuple[Instance, ...],
    gateway_entry: Gateway | None,
    instance: Instance,
) -> None:
    _socket(
        survey,
        service_accounts,
        declared_instances,
        gateway_entry,
        instance.socket,
        restart_units(instance.unit),
    )


@check(
    "R06",
    "only root and the gateway can open the gateway's internal sockets",
    severity="critical",
    why="write access to the sockets allows control of revoked keys and of request routing",
)
def test_gateway_sockets(
    survey: SurveyAnswers,
    service_accounts: ServiceAccounts,
    declared_instances: tuple[Instance, ...],
    gateway_entry: Gateway | None,
    gateway: object,
) -> None:
    own = {one.socket for one in declared_instances}
    for path, unit in socket_units(declared_instances, gateway_entry).items():
        if path not in own:
            holder = (ROUTER_SOCKET,) if unit == ROUTER_UNIT else ()
            _socket(survey, service_accounts, declared_instances, gateway_entry, path, restart_units(*holder, unit))


def _socket(
    survey: SurveyAnswers,
    service_accounts: ServiceAccounts,
    declared_instances: tuple[Instance, ...],
    gateway_entry: Gateway | None,
    path: str,
    step: Remedy,
) -> None:
    reach, unit = survey.read(REACH), socket_units(declared_instances, gateway_entry)[path]
    users = {
        one.socket: (service_accounts.of_instance(one), service_accounts.socket_groups(one, gateway_entry))
        for one in declared_instances
    }
    owner, groups = users.get(path, (service_accounts.gateway, (service_accounts.gateway,)))
    folder = path.rpartition("/")[0]
    closed = folder in private_folders(declared_instances, gateway_entry)
    socket = reach.lying[path]
    expect(f"{path} is {socket.kind}", f"{path} is a socket", step)
    owners = {owner, "root"} if not closed else {owner}
    for at in [path, *([folder] if closed else [])]:
        lying = reach.lying[at]
        whose = f"{at} is {lying.owner}'s and group {lying.group}'s"
        fits = lying.owner in owners and lying.group in groups
        expect(whose, f"{at} is {owner}'s and group {groups[-1]}'s", step, holds=fits)
        expect("an access list" if lying.listed else "none", "none", step)
    # of a folder that others cannot go through, what lies in it may have any mode
    guard, at = (reach.lying[folder], folder) if closed else (socket, path)
    fits = guard.mode & OTHERS == 0
    expect(f"{at} has mode {guard.mode:04o}", f"{at} is closed to others", step, holds=fits)
    if closed:
        elsewhere = ", ".join(reach.mounted[folder])
        expect(elsewhere or "a single mount", "a single mount", host_command("umount -- {}", reach.mounted[folder]))
    there = reach.listening[path]
    own = (f" of {unit}", " of init.scope") if not closed else (f" of {unit}",)
    strangers = sorted({name for name in [*there["own"], *there["host"]] if not name.endswith(own)})
    expect(", ".join(strangers) or "no other", "no other", STOP_LISTENER + step)
    expect("a listener" if there["own"] or there["host"] else "no listener", "a listener", step)


@check(
    "R07",
    "no interface routes loopback addresses",
    severity="critical",
    why="neighbours on such a network can connect to ports meant for this host only",
)
def test_loopback_is_loopback(survey: SurveyAnswers) -> None:
    found = survey.read(REACH).routed
    settings = [f"net.ipv4.conf.{name}.route_localnet=0" for name in found]
    step = host_command("sysctl -w {}", settings) + instruction("remove route_localnet from /etc/sysctl.d")
    expect(", ".join(f"{name} routes 127.0.0.0/8" for name in found) or "no interface", "no interface", step)


@check(
    "R08",
    "the host has the addresses that the rig listens on",
    severity="high",
    why="at an address that the host has lost, clients reach no host, or another one",
)
def test_addresses(
    survey: SurveyAnswers,
    gateway_entry: Gateway | None,
    share_entry: ShareEntry | None,
    watched_services: tuple[MonitoringService, ...],
) -> None:
    declared = [one.own_address for one in (gateway_entry.listeners.values() if gateway_entry else ())]
    declared += [one.address for one in ([gateway_entry.fleet.listener] if gateway_entry else ()) if one]
    declared += [share_entry.address] if share_entry else []
    declared += [one.at[0] for one in watched_services]
    there = {*survey.read(REACH).addresses}
    lost = sorted({one for one in declared if one not in there and not _local(one)})
    expect(
        ", ".join(f"{one} missing" for one in lost) or "all of them",
        "all of them",
        instruction("add the address to its interface again"),
    )


def _local(address: str) -> bool:
    """Whether an address is one that every host has."""
    return ip_address(address).is_loopback or ip_address(address).is_unspecified


@check(
    "R09",
    "replies to clients are routed",
    severity="high",
    why="clients wait for replies that never leave this host",
)
def test_answers_are_routed(survey: SurveyAnswers) -> None:
    lost = survey.read(CLIENT_ROUTES).unrouted
    found = "; ".join(f"the route to {client} is {why}" for client, why in lost.items())
    expect(
        found or "replies are routed", "replies are routed", instruction("`ip route` and `ip rule` show it: delete it")
    )
    shaped = ", ".join(survey.read(CLIENT_ROUTES).shaped)
    expect(shaped or "no lossy queue", "no lossy queue", instruction("delete it with `tc qdisc del` on that interface"))
