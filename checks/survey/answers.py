"""A survey that was taken: typed answers, each judged when a check first asks for it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, TypeVar

from pydantic import ValidationError

from checks import Drift
from checks.remedy import instruction
from checks.survey.section import Section
from checks.survey.sections import survey_validator
from checks.survey.survey_program import decode_answers

T = TypeVar("T")


@dataclass(frozen=True)
class SurveyAnswers:
    """A host's answers."""

    answers: Mapping[str, Mapping[str, object]]
    reason: str = ""
    """Why there is no answer at all."""
    program: str = ""
    """SHA-256 of the program and the questions that the host was sent."""
    _read: dict[str, Any] = field(default_factory=dict)

    def read(self, section: Section[T]) -> T:
        """A section's answer.

        Raises:
            Drift: the host has none, or none of this shape: an unseen state does not conform.
        """
        if section.name not in self._read:
            self._read[section.name] = self._validate_answer(section)
        found: T = self._read[section.name]
        return found

    def _validate_answer(self, section: Section[T]) -> T:
        answer = self.answers.get(section.name, {"failed": self.reason or "it was not asked"})
        cure = instruction("find the reason on the host")
        if "told" not in answer:
            raise Drift(f"an answer about {section.name}", str(answer.get("failed", "none")), cure)
        try:
            # from JSON, a list is a tuple and a set, too; nothing else is taken for something that it is not
            told = json.dumps(answer["told"], allow_nan=False)
            judged = section.validator.validate_json(told, strict=True)
        except RecursionError:
            raise Drift(f"an answer about {section.name}", "endlessly nested lists", cure) from None
        except ValidationError as error:
            first = error.errors(include_url=False, include_input=False)[0]
            where = ".".join(map(str, first["loc"]))
            raise Drift(f"an answer about {section.name}", f"{where}: {first['msg']}", cure) from None
        except ValueError:  # of which ValidationError is one
            raise Drift(f"an answer about {section.name}", "an invalid number", cure) from None
        return judged


def read_survey(text: bytes, program: str) -> SurveyAnswers:
    """The answers of a survey's JSON text. If an answer has a wrong shape, each is validated when a check reads it.

    Raises:
        ValueError: as `checks.survey.survey_program.decode_answers`.
    """
    with suppress(ValidationError):
        found = survey_validator().validate_json(text, strict=True)
        told = {name: one["told"] for name, one in found.items() if "told" in one}
        return SurveyAnswers(found, program=program, _read=told)
    return SurveyAnswers(decode_answers(text), program=program)
