"""What a host's rules do with packets to what a rig listens on."""

from collections.abc import Iterator

from checks import Drift, check, expect
from checks.packets.reachability import FilteredHost
from checks.remedy import host_command, instruction, reinstall_packages
from checks.survey.answers import SurveyAnswers
from checks.survey.firewall import FIREWALL
from rigwright.model.rig import Rig

SHOWN = 3
RULES = instruction("`nft list ruleset` or `iptables-save` shows the rule: delete it there and in its source file")


def _sceneries(survey: SurveyAnswers, rig: Rig) -> Iterator[tuple[str, FilteredHost]]:
    """The rules in force, and those that the next boot loads, each with a word for when they count."""
    now = survey.read(FIREWALL)
    for when, firewall in (("", now), (", after a boot", now.after_a_boot())):
        if firewall:
            try:
                yield when, FilteredHost(rig, firewall)
            except ValueError as error:
                raise Drift("readable rules", f"{error}{when}", instruction("`nft list ruleset` shows them")) from None


def _first(found: Iterator[str]) -> str:
    """A few of them, each once."""
    every = list(dict.fromkeys(found))
    return "; ".join([*every[:SHOWN], *([f"{len(every) - SHOWN} more"] if len(every) > SHOWN else [])])


@check(
    "R02",
    "no packet filter rule redirects others to the rig's ports, or its clients elsewhere",
    severity="critical",
    why="a redirect opens an undeclared port, or sends clients and their keys to another service",
)
def test_nothing_is_redirected(survey: SurveyAnswers, rig: Rig) -> None:
    found = (f"{one}{when}" for when, scenery in _sceneries(survey, rig) for one in scenery.find_redirects())
    expect(_first(found) or "nothing", "nothing", RULES)


@check(
    "R03",
    "no packet filter rule blocks clients from the rig's ports",
    severity="critical",
    why="the service answers this host alone",
)
def test_nobody_is_kept_out(survey: SurveyAnswers, rig: Rig) -> None:
    found = (f"{one}{when}" for when, scenery in _sceneries(survey, rig) for one in scenery.find_blocked_clients())
    expect(_first(found) or "no other", "no other", RULES)


@check(
    "R09",
    "replies to clients are routed",
    severity="high",
    why="clients wait for answers that never leave this host",
)
def test_answers_are_routed(survey: SurveyAnswers) -> None:
    lost = survey.read(FIREWALL).unrouted
    found = "; ".join(f"the route to {client} is {why}" for client, why in lost.items())
    expect(
        found or "replies are routed", "replies are routed", instruction("`ip route` and `ip rule` show it: delete it")
    )
    shaped = ", ".join(survey.read(FIREWALL).shaped)
    expect(shaped or "no lossy queue", "no lossy queue", instruction("delete it with `tc qdisc del` on that interface"))


@check(
    "R10",
    "rules set by tools older than nft can be read",
    severity="high",
    why="rules that cannot be read may redirect any client to any address",
)
def test_legacy(survey: SurveyAnswers) -> None:
    unread = [program for program, text in survey.read(FIREWALL).legacy.items() if text is None]
    step = reinstall_packages("iptables")
    expect(", ".join(unread) or "no unreadable rules", "no unreadable rules", step)
    planned = survey.read(FIREWALL).planned
    step = instruction("correct that file: a boot loads nothing of it")
    expect((planned.failed if planned else "") or "rules that a boot can load", "rules that a boot can load", step)
    # a check loads no module: what comes of them is seen where somebody has
    known = planned is None or planned.judged
    step = host_command("modprobe dummy")
    expect("read" if known else "not read: they need interfaces", "rules of the next boot read", step, holds=known)
