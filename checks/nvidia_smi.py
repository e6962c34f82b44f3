"""Questions to nvidia-smi on a checked host; an invalid answer is a drift."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from checks import Drift
from checks.nvidia.driver_status import LOG, REBOOT
from checks.survey.answers import SurveyAnswers
from checks.survey.cards import CARDS

T = TypeVar("T")


def parse_smi_answer(survey: SurveyAnswers, name: str, read: Callable[[int, str, str], T]) -> T:
    """nvidia-smi's answer to one of the survey's questions, read by the question's own reader.

    Raises:
        Drift: it has no answer.
    """
    said = survey.read(CARDS).answers.get(name)
    try:
        if said is None:
            raise ValueError("it was not asked")
        return read(said.status, said.out, said.err)
    except ValueError as error:
        raise Drift("an answer from nvidia-smi", error, LOG + REBOOT) from None
