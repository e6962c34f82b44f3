"""Users, folders and packages."""

from checks import DEPLOY, check, expect
from checks.drift_text import format_first_lines
from checks.remedy import host_command, instruction
from checks.survey.accounts import ACCOUNTS, NO_LOGIN
from checks.survey.answers import SurveyAnswers
from checks.survey.base_system import GROUND
from checks.survey.managed_files import OURS
from rigwright.plan.preflight import HOME


@check(
    "B01",
    "each service has a user that cannot log in",
    severity="high",
    why="a service account with a login shell allows logins",
)
def test_users(survey: SurveyAnswers, service_users: tuple[str, ...]) -> None:
    accounts = survey.read(ACCOUNTS)
    for name in service_users:
        user = accounts.user(name)
        found = f"{name} with shell {user.shell} and home {user.home}" if user else f"no user {name}"
        expect(found, f"{name} with shell {NO_LOGIN} and home {HOME}", DEPLOY)


@check(
    "B02",
    "only root can write to the software and state directories",
    severity="critical",
    why="a file written there runs as the service, or as root at the next deploy",
)
def test_roots_are_not_writable(survey: SurveyAnswers) -> None:
    loose = [str(one) for one in survey.read(OURS).loose]
    expect(format_first_lines(loose) or "files owned by root", "files owned by root", DEPLOY)


@check(
    "B03",
    "dpkg reports no broken or half-configured packages",
    severity="high",
    why="a half-configured package blocks every later install",
)
def test_dpkg_is_consistent(survey: SurveyAnswers) -> None:
    said = " ".join(survey.read(GROUND).audit.split())
    cure = host_command("dpkg --configure --pending")
    if "reinstalled" in said or "md5sums" in said:
        cure += instruction("reinstall the packages named as to be reinstalled")
    expect(said or "no complaints", "no complaints", cure)


@check(
    "B04",
    "the packages that the rig needs are installed",
    severity="high",
    why="without them a service does not restart, or the next deploy cannot fetch anything",
)
def test_packages(survey: SurveyAnswers) -> None:
    missing = survey.read(GROUND).missing
    expect(format_first_lines([f"no {name}" for name in missing]) or "all of them", "all of them", DEPLOY)
