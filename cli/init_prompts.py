"""Prompts of `rigwright init`: the variant, and the first deploy."""

from __future__ import annotations

import shlex
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

import click

from cli.exit_codes import NotAsDeclared
from cli.option_types import WholeNumber
from cli.prog_name import prog_name
from cli.tables import print_prose
from rigwright.declaration.variant_selection import VariantQuery, choose_variants, describe_no_match
from rigwright.model.catalog_schema import Catalog
from rigwright.model.engine_schema import NEEDS, WORKLOADS, Need, Workload
from rigwright.model.roots import Roots
from rigwright.problems import format_count
from rigwright.project_root import ROOT
from rigwright.survey.box_survey import BoxSurvey
from rigwright.survey.suggestions import INSTANCE, VariantOffer, card_names, taken_cards

NO_ANSWER = "nothing yet"
Choice = TypeVar("Choice")


@dataclass(frozen=True)
class VariantRequest:
    """The operator's options for it."""

    variant: str | None = None
    need: Need | None = None
    workload: Workload | None = None
    cards: int | None = None
    """How many cards it may have; None for all that are free."""

    @property
    def is_complete(self) -> bool:
        """Whether a variant follows from it without a question."""
        return self.variant is not None or self.need is not None or self.workload is not None


def choose_variant(
    wish: VariantRequest, survey: BoxSurvey, catalog: Catalog, offered: Callable[[str], VariantOffer], *, asks: bool
) -> VariantOffer | None:
    """The variant of the box: the requested one, the answered one, or nothing yet.

    Args:
        wish: The request on the command line.
        survey: The box.
        catalog: The variants that it may serve.
        offered: The obstacles of a variant there.
        asks: Whether a person is there to answer.

    Raises:
        click.ClickException: the requested one does not fit the box; the text tells why.
    """
    if wish.variant is not None:
        one = offered(wish.variant)
        if one.refusal:
            raise click.ClickException(f"--variant {wish.variant} does not fit this box: {one.refusal}")
        return one
    if not wish.is_complete:
        return _prompt_offer(_prompt_request(wish, survey, catalog), survey, catalog, offered) if asks else None
    offers = [offered(name) for name in _matching_variants(wish, survey, catalog)]
    if best := next((one for one in offers if not one.refusal), None):
        return best
    if not offers:
        raise click.ClickException(describe_no_match(catalog, tuple(_free_cards(survey, catalog)[: wish.cards])))
    said = "; ".join(f"{one.variant}: {one.refusal}" for one in offers)
    raise click.ClickException(f"the matching variants do not fit this box: {said}")


def _free_cards(survey: BoxSurvey, catalog: Catalog) -> list[frozenset[str]]:
    """The catalogue's names of each idle card: two that mean the same board are both its."""
    names, taken, known = card_names(survey, catalog), taken_cards(survey), catalog.cards

    def board(name: str) -> tuple[object, ...]:
        return known[name].pci_ids, known[name].vram_mib

    return [
        frozenset(other for other in known if board(other) == board(name))
        for number, name in enumerate(names)
        if number not in taken
    ]


def _matching_variants(wish: VariantRequest, survey: BoxSurvey, catalog: Catalog) -> tuple[str, ...]:
    """Variants that answer, the best first."""
    free = _free_cards(survey, catalog)
    return choose_variants(catalog, VariantQuery(wish.need, wish.workload, tuple(free[: wish.cards])))


def _prompt_request(wish: VariantRequest, survey: BoxSurvey, catalog: Catalog) -> VariantRequest:
    """The three questions, each without answers that no variant for these cards has."""
    purposes = [catalog.variants[name].purpose for name in _matching_variants(wish, survey, catalog)]
    needs = {need: words for need, words in NEEDS.items() if any(one and need in one.needs for one in purposes)}
    workloads = {name: name for name in WORKLOADS if any(one and name in one.workloads for one in purposes)}
    need = _prompt_choice("Priority?", needs, "no priority")
    workload = _prompt_choice("Workload?", workloads, "any")
    free = len(_free_cards(survey, catalog))
    cards = wish.cards
    if free and cards is None:
        cards = click.prompt(f"How many of {format_count(free, 'free card')}?", type=WholeNumber(0, free), default=free)
    return replace(wish, need=need, workload=workload, cards=cards)


def _prompt_choice(question: str, values: Mapping[Choice, str], none: str) -> Choice | None:
    """One of some values, each with its words, by its number; None without a question where there are none."""
    if not values:
        return None
    print_prose(f"\n{question}\n  0  {none}")
    for number, words in enumerate(values.values(), start=1):
        print_prose(f"  {number}  {words}")
    answer: int = click.prompt("Number", type=WholeNumber(0, len(values)), default=0)
    return list(values)[answer - 1] if answer else None


def _prompt_offer(
    wish: VariantRequest, survey: BoxSurvey, catalog: Catalog, offered: Callable[[str], VariantOffer]
) -> VariantOffer | None:
    """One of those that answer, the best of them unless another number is given."""
    offers = [offered(name) for name in _matching_variants(wish, survey, catalog)]
    fitting = [one for one in offers if not one.refusal]
    for one in offers:
        if one.refusal:
            print_prose(f"does not fit: {one.variant}: {one.refusal}")
    if not fitting:
        if not offers:
            print_prose(describe_no_match(catalog, tuple(_free_cards(survey, catalog)[: wish.cards])))
        print_prose("Nothing is served yet.")
        return None
    print_prose(f"\nVariant to serve?\n  0  {NO_ANSWER}")
    for number, one in enumerate(fitting, start=1):
        print_prose(f"  {number}  {_describe_offer(one, catalog)}")
        if purpose := catalog.variants[one.variant].purpose:
            print_prose(f"     {purpose.why}")
    answer = click.prompt("Number", type=WholeNumber(0, len(fitting)), default=1)
    return fitting[answer - 1] if answer else None


def _describe_offer(one: VariantOffer, catalog: Catalog) -> str:
    variant = catalog.variants[one.variant]
    cards = f"cards {', '.join(map(str, one.cards))}" if one.cards else "CPU"
    requests, tokens = variant.capacity or (0, 0)
    sized = f", {requests} at once with {tokens} tokens each" if requests else ""
    return f"{one.variant}: {cards}{sized}; {variant.evidence.kind if variant.evidence else 'evidence: none given'}"


@dataclass(frozen=True)
class ServeRequest:
    """A box that is to serve."""

    file: Path
    """Its inventory."""
    connection: Mapping[str, object]
    model: str
    """By which name clients ask for it."""
    port: int
    """On the box's loopback interface."""
    listen: int | None
    """On all of its addresses; None without a gateway."""
    lock: bool
    """Whether something of it is not locked yet."""
    reboot: bool
    """Whether the box may be rebooted for its driver."""


def serve_box(box: ServeRequest) -> None:
    """Lock, validate, deploy, which has it answer a completion before it is kept, verify, and say where it is served.

    The failures of `check --serving` are shown, and end nothing: the box serves.

    Raises:
        cli.exit_codes.NotAsDeclared: one of these ended otherwise; the text says which, and what to run once that is
        mended.
    """
    reboot = ["--reboot"] if box.reboot else []
    for verb, *options in ([["lock"]] if box.lock else []) + [["validate"], ["deploy", *reboot]]:
        words = shlex.join([verb, str(box.file), *options])
        click.echo(f"\n==> {prog_name()} {words}")
        # each in a process of its own: pyinfra's gevent has to be there before SSH was used
        if _run_rigwright([sys.executable, str(ROOT), verb, str(box.file.resolve()), *options]):
            raise NotAsDeclared(f"{box.file} is written, and `{prog_name()} {words}` has failed (see above)")
    words = shlex.join(["check", str(box.file), "--serving"])
    click.echo(f"\n==> {prog_name()} {words}")
    if _run_rigwright([sys.executable, str(ROOT), "check", str(box.file.resolve()), "--serving"]):
        click.echo(
            f"It serves, and not all that its variant declares is proven: `{prog_name()} {words}`, as shown above."
        )
    host, user = str(box.connection["ssh_hostname"]), str(box.connection["ssh_user"])
    given = {"-p": box.connection.get("ssh_port"), "-i": box.connection.get("ssh_key")}
    way = [*(word for option, value in given.items() if value for word in (option, str(value))), f"{user}@{host}"]
    key = f"{Roots().config}/credentials/{INSTANCE}.api-key"
    sudo = ["sudo"] if box.connection.get("_sudo") else []
    click.echo(
        f"\n{box.model} answers at http://127.0.0.1:{box.port}/v1 on the box, with a key of its own. From here:\n"
        f"  {shlex.join(['ssh', '-L', f'{box.port}:127.0.0.1:{box.port}', *way])}\n"
        f"  {shlex.join(['ssh', *way, *sudo, 'cat', key])}   # the key\n"
        + (
            f"Clients on the network: http://{host}:{box.listen}/v1, without a key."
            if box.listen
            else 'For clients on your network: --listen, or "gateway" (docs/guides/gateway.md).'
        )
    )


def _run_rigwright(words: list[str]) -> int:
    """Run a program to its end, as one types it; returns its exit status."""
    sys.stdout.flush()
    return subprocess.run(words, cwd=ROOT, check=False).returncode
