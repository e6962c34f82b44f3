"""The pulls of a box that fetches its generations itself."""

from checks import check, expect
from checks.remedy import host_command, instruction, show_log
from checks.survey.answers import SurveyAnswers
from checks.survey.section import SurveyScope
from checks.survey.self_check import SELF_CHECK
from rigwright.model.fact_types import PullFacts
from rigwright.model.pull_schema import PullEntry
from rigwright.pull.pull_facts import describe_late_pull, describe_pull_problem
from rigwright.pull.pull_units import PULL_FETCH_SERVICE, PULL_SERVICE


@check(
    "Y04",
    "the box pulls its generation, and refuses none",
    severity="high",
    why="a box that gets no generation, or refuses it, keeps faults that are repaired elsewhere",
    blind="a web server that withholds a newer timestamp, until the last one expires",
)
def test_pulls(survey: SurveyAnswers, scope: SurveyScope, pull: PullEntry) -> None:
    # without a readable machine id there is no record
    facts, found = scope.desired.facts.pull or PullFacts(""), survey.read(SELF_CHECK)
    problem = describe_pull_problem(facts)
    cure = instruction("repair what the text names, publish again, or deploy") + show_log(PULL_SERVICE)
    expect(problem, "a generation that is accepted", cure, holds=not problem)
    late = describe_late_pull(facts, pull, found.now, max(found.booted, found.deployed))
    start = host_command("systemctl start {}", PULL_SERVICE) + show_log(PULL_FETCH_SERVICE)
    expect(late, "a verified timestamp in time", start, holds=not late)
