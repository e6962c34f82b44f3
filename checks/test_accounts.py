"""The services' users: each is one of its own, and no other user is one of them."""

from checks import DEPLOY, check, expect
from checks.drift_text import format_first_lines
from checks.remedy import (
    Remedy,
    host_command,
    instruction,
    kill_processes,
    remove_paths,
    restart_units,
)
from checks.survey.accounts import ACCOUNTS, socket_folder
from checks.survey.answers import SurveyAnswers
from checks.survey.section import TRY
from rigwright.gateway.address_reservations import unit_names
from rigwright.gateway.secrets_distribution import GATEWAY_UNIT, HEALTH_UNIT, ROUTER_UNIT
from rigwright.model.accounts import ServiceAccounts
from rigwright.model.catalog_schema import Card
from rigwright.model.gateway_schema import Gateway
from rigwright.model.instance import Instance
from rigwright.model.monitoring_schema import Monitoring
from rigwright.monitoring.monitoring_units import unit_name
from rigwright.plan.preflight import HOME

SYSTEM = range(1, 1000)  # useradd(8), --system: SYS_UID_MAX of login.defs


@check(
    "A01",
    "each service user has its own UID and primary group",
    severity="critical",
    why="the kernel only sees numbers: an account with the same UID reads the service's memory and impersonates it",
)
def test_numbers(survey: SurveyAnswers, service_users: tuple[str, ...]) -> None:
    accounts = survey.read(ACCOUNTS)
    twins, groups, odd = [], [], dict[str, str]()
    for name in service_users:
        user = accounts.user(name)
        if user is None:
            continue  # B01
        same = [one.name for one in accounts.users if one.uid == user.uid]
        twins += [f"{one} with UID {user.uid} of {name}" for one in same if one != name]
        twins += [f"{name} twice" for _ in same if same.count(name) > 1][:1]
        others = [one.name for one in accounts.users if one.gid == user.gid and one.name not in (name, *same)]
        others += [one.name for one in accounts.groups if one.gid == user.gid and one.name != name]
        groups += [f"{one} with GID {user.gid} of {name}" for one in others]
        if accounts.group_names(user.gid).split("/")[0] != name:
            odd[name] = f"{name} in the group {accounts.group_names(user.gid)}"
        if user.uid not in SYSTEM:
            odd[name] = f"{name} with UID {user.uid}"
    cure = instruction("delete the account that is not Rigwright's, or give it another UID")
    expect(format_first_lines(twins) or "no others", "no others", cure)
    cure = instruction("delete the account or group that is not Rigwright's, or give it another GID")
    expect(format_first_lines(groups) or "no others", "no others", cure)
    expect(
        format_first_lines([*odd.values()]) or "a system user in its own group",
        "a system user in its own group",
        host_command("systemctl stop 'rigwright*'; for user in {}; do userdel --force $user; done", [*odd]) + DEPLOY,
    )


@check(
    "A02",
    "service users are in no group but their own, which has no other member",
    severity="critical",
    why="group membership grants access to disks, cards, passwords or other services' sockets, in either direction",
)
def test_groups(survey: SurveyAnswers) -> None:
    accounts = survey.read(ACCOUNTS)
    beside = {
        (one.name, accounts.group_names(gid)): host_command(
            "gpasswd --delete {} {}", one.name, accounts.group_names(gid).partition("/")[0]
        )
        for one in accounts.ours
        if (user := accounts.user(one.name))
        for gid in one.groups
        if gid != user.gid
    }
    expect(
        format_first_lines([f"{user} in {group}" for user, group in beside]) or "only its own group",
        "only its own group",
        sum(beside.values(), Remedy(())) + DEPLOY,
    )
    inside, remedy = [], Remedy(())
    for one in accounts.ours:
        members = {*one.group_members}.union(*(group.members for group in accounts.groups if group.name == one.name))
        inside += [f"{member} in {one.name}" for member in sorted(members | {*one.group_admins})]
        if one.group_admins:
            remedy += host_command("gpasswd --administrators '' {}", one.name)
        remedy = sum((host_command("gpasswd --delete {} {}", member, one.name) for member in sorted(members)), remedy)
    expect(format_first_lines(inside) or "no other member", "no other member", remedy)


@check(
    "A03",
    "service users and their groups have no password",
    severity="critical",
    why="the password, or an empty one, makes every local user the service user",
)
def test_passwords(survey: SurveyAnswers) -> None:
    accounts = survey.read(ACCOUNTS)
    users = {one.name: one.password for one in accounts.ours}
    groups = {one.name: one.group_password for one in accounts.ours}
    found = [f"{name}: {word}" for name, word in users.items() if word != "none"]
    cure = DEPLOY if found else Remedy(())
    for name, word in groups.items():
        if word != "none":
            found.append(f"group {name}: {word}")
            cure += host_command("groupmod --password '!' {}", name)
    expect(format_first_lines(found) or "none", "none", cure)


@check(
    "A04",
    "service users' home directories do not exist",
    severity="high",
    why="SSH keys in a home directory allow logins, and programs obey the startup files there",
)
def test_home(survey: SurveyAnswers, service_users: tuple[str, ...]) -> None:
    accounts = survey.read(ACCOUNTS)
    homes = {user.home for name in service_users if (user := accounts.user(name))}
    expect(
        f"an entry at {', '.join(sorted(homes))}" if accounts.home else "nothing",
        "nothing",
        remove_paths(HOME),
    )


@check(
    "A08",
    "only its unit's processes run under a service user's UID",
    severity="critical",
    why="a process with the service's UID can read its key and impersonate it",
)
def test_processes(
    survey: SurveyAnswers,
    service_accounts: ServiceAccounts,
    declared_cards: tuple[Card, ...],
    declared_instances: tuple[Instance, ...],
    gateway_entry: Gateway | None,
    monitoring_entry: Monitoring | None,
) -> None:
    # logrotate puts the gateway's log away as the gateway, for the folder is that user's
    units = {service_accounts.of_instance(one): {one.unit} for one in declared_instances}
    units |= {
        service_accounts.gateway: {GATEWAY_UNIT, HEALTH_UNIT, "logrotate.service"},
        service_accounts.router: {ROUTER_UNIT, *unit_names(gateway_entry)},
    }
    units |= {
        user: {unit_name(name)}
        for name, user in service_accounts.exporters(monitoring_entry, cards=bool(declared_cards)).items()
    }
    # the attempts of another run of checks are over in a minute, and S24 minds them after that
    found = {
        one.pid: f"{one.name} (pid {one.pid}) in {one.unit} as {one.user}"
        for one in survey.read(ACCOUNTS).processes
        if not units.get(one.user, set()) & set(one.unit.split("/")) and not one.unit.startswith(f"/system.slice/{TRY}")
    }
    expect(format_first_lines(sorted(found.values())) or "none", "none", kill_processes(found))


@check(
    "A12",
    "runtime directories belong to their service users",
    severity="high",
    why="after a UID change, the socket belongs to another user, or the service cannot start",
)
def test_folders(
    survey: SurveyAnswers,
    service_accounts: ServiceAccounts,
    declared_instances: tuple[Instance, ...],
    gateway_entry: Gateway | None,
) -> None:
    accounts = survey.read(ACCOUNTS)
    there = {one.path: one for one in accounts.folders}
    found = dict[str, str]()
    for instance in declared_instances:
        user = accounts.user(service_accounts.of_instance(instance))
        groups = {
            one.gid for one in accounts.groups if one.name in service_accounts.socket_groups(instance, gateway_entry)
        }
        one = there.get(socket_folder(instance))
        if one and user and (one.uid != user.uid or one.gid not in groups):
            found[instance.unit] = f"{one.path} of user {one.uid} and group {accounts.group_names(one.gid)}"
    wrong = format_first_lines([*found.values()])
    expect(wrong or "directories of their own users", "directories of their own users", restart_units(*found))
