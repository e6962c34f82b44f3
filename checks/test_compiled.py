"""The code that engines compile for the cards, and run."""

import pytest

from checks import DEPLOY, ItemText, check, expect
from checks.remedy import host_command
from checks.survey.answers import SurveyAnswers
from checks.survey.programs import COMPILED
from rigwright.engines.engine_interface import ServiceSpec
from rigwright.model.accounts import ServiceAccounts
from rigwright.model.instance import WARM, Instance

SHOWN = 5


@check(
    "S15",
    "only the instance can write to its compile cache",
    severity="critical",
    why="the engine runs the cached code: a file written there runs as the service",
)
def test_compiled_is_its_own(
    survey: SurveyAnswers, service_accounts: ServiceAccounts, instance: Instance, service: ServiceSpec
) -> None:
    if not service.cache:
        pytest.skip("engines of this kind have no compile cache")
    found, user = survey.read(COMPILED), service_accounts.of_instance(instance)
    own = found.own[service.cache]
    cure = host_command("systemctl stop {}; rm -rf -- {} {}", instance.unit, instance.cache_folder, WARM) + DEPLOY
    expect(f"{own.owner or 'no user'} with mode {own.mode:o}", f"{user} with mode 700", cure)
    expect(ItemText.from_items(own.others, shown=SHOWN), "only its own files in it", cure, holds=not own.others)
    loose = ItemText.from_items(found.loose, shown=SHOWN)
    expect(loose, "no file that others can change in its initial contents", cure, holds=not found.loose)
