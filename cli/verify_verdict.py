"""`rigwright verify-verdict`: verification of signed verdicts, by the program that also runs without Rigwright."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from cli.exit_codes import InvalidRequest
from cli.option_types import WholeNumber
from rigwright.signing.refusals import SignatureRefused

if TYPE_CHECKING:
    from checks.verdict_verifier import VerifiedVerdict

EXISTING = click.Path(exists=True, dir_okay=False)


class TpmKeyFile(click.Path):
    """A file with the key of a TPM, and the name of its box; empty for the only box of all verdicts."""

    def __init__(self) -> None:
        super().__init__(exists=True, dir_okay=False)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """BOX and FILE of `BOX=FILE`; `./a=b.pem` is a file."""
        box, is_named, path = value.partition("=")
        if not is_named or "/" in box:
            box, path = "", value
        return box, super().convert(path, param, ctx)


@click.command("verify-verdict")
@click.argument("files", metavar="[FILE]...", nargs=-1, type=EXISTING)
@click.option("--inventory", type=EXISTING, help="Inventory with the signers and revoked keys.")
@click.option("--signers", type=EXISTING, help="Keys that may sign, as ssh-keygen's allowed signers.")
@click.option("--revoked", type=EXISTING, help="Keys, or fingerprints, that may no longer sign.")
@click.option(
    "--host-key", "host_keys", multiple=True, metavar="SHA256:...", help="A host key of the boxes; repeatable."
)
@click.option(
    "--tpm-key",
    "tpm_keys",
    multiple=True,
    type=TpmKeyFile(),
    metavar="[BOX=]FILE",
    help="Key of its TPM, PEM; repeatable.",
)
@click.option("--nonce", metavar="HEX", help="The nonce that the newest verdict has to answer.")
@click.option(
    "--newest", type=WholeNumber(1, 999_999_999), default=1, help="The number that the newest verdict has at least."
)
@click.option("--complete", is_flag=True, help="Refuse a chain without its first verdict.")
@click.option("--program", is_flag=True, help="Print the program that verifies without Rigwright.")
def verify_verdict(
    files: tuple[str, ...],
    inventory: str | None,
    signers: str | None,
    revoked: str | None,
    host_keys: tuple[str, ...],
    tpm_keys: tuple[tuple[str, str], ...],
    nonce: str | None,
    newest: int,
    complete: bool,
    program: bool,
) -> None:
    """Verify signed verdicts.

    FILEs are verdicts of `rigwright check --sign`. Those of a box form a chain.
    Exit status: 0, all boxes conform. 1, one does not. 2, a verdict or a chain is refused.
    Example: rigwright verify-verdict --inventory rig.py verdicts/box1/*.jsonl
    """
    from checks import verdict_verifier

    if program:
        click.echo(Path(verdict_verifier.__file__).read_text(), nl=False)
        return
    if not files or bool(signers) == bool(inventory):
        raise InvalidRequest("verify-verdict needs FILE and either --inventory or --signers, or --program")
    words = [f"--newest={newest}", *(["--complete"] if complete else [])]
    words += [f"--nonce={nonce}"] if nonce is not None else []
    words += [f"--host-key={value}" for value in host_keys]
    with tempfile.TemporaryDirectory(prefix="rigwright-") as folder:
        if inventory:
            signers, own = _write_trust(inventory, Path(folder))
            revoked = _join_files(Path(folder, "all"), own, revoked)
        words += [f"--signers={signers}", *([f"--revoked={revoked}"] if revoked else [])]
        status = verdict_verifier.main([*words, "--", *files], _make_quote_judge(tpm_keys))
    sys.exit(status)


def _write_trust(inventory: str, folder: Path) -> tuple[str, str]:
    """The files with the signers of an inventory, and its revoked keys."""
    from cli.inventory_loading import load_host_rigs, load_hosts
    from rigwright.signing.trusted_signers import render_allowed_signers

    # all rigs have the same signers
    trusted = next(iter(load_host_rigs(load_hosts(inventory, None)).values())).signers
    if not trusted:
        raise InvalidRequest(f"{inventory}: no rig has signers: add signers={{...}} to hosts(), or use --signers")
    able = replace(trusted, signers=tuple(one for one in trusted.signers if "verdict" in one.kinds))
    signers, revoked = folder / "signers", folder / "revoked"
    signers.write_text(render_allowed_signers(able))
    revoked.write_text("".join(f"{one}\n" for one in sorted(trusted.revoked)))
    return str(signers), str(revoked)


def _join_files(joined: Path, *paths: str | None) -> str:
    joined.write_bytes(b"\n".join(Path(path).read_bytes() for path in paths if path))
    return str(joined)


def _make_quote_judge(tpm_keys: Sequence[tuple[str, str]]) -> Callable[[VerifiedVerdict], str]:
    """Lines about the quote in a verdict; with keys of TPMs, a verdict without a valid quote by its box is refused."""
    from checks import verdict_verifier

    if not tpm_keys:
        return verdict_verifier.describe_quote
    keys = [(box, Path(path).read_bytes()) for box, path in tpm_keys]
    names = set[str]()

    def judge(one: VerifiedVerdict) -> str:
        from checks.tpm_quote import describe_registers, verify_quote

        name = one.details["subject"]["name"]
        names.add(name)
        if len(names) > 1 and any(not box for box, _ in keys):
            text = f"{one.path}: there are several boxes: name the box of each key, as in --tpm-key {name}=FILE"
            raise verdict_verifier.VerdictRefused("other_box", text)
        known, quoted = [pem for box, pem in keys if box in ("", name)], list[tuple[int, dict[str, Any]]]()
        try:
            signer = verify_quote(one.details, known)
        except SignatureRefused as error:
            raise verdict_verifier.VerdictRefused(error.reason, f"{one.path}: {error}") from None
        for link in (*one.earlier, one):
            with suppress(SignatureRefused):  # of an earlier mainboard, or before the box had the TPM's programs
                verify_quote(link.details, known)
                quoted.append((link.sequence, link.details))
        return "".join(f"  {line}\n" for line in (f"quote of a TPM: by {signer}", *describe_registers(quoted)))

    return judge
