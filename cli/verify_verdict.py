"""`rigwright verify-verdict`: verification of signed verdicts, by the program that also runs without Rigwright."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from cli.exit_codes import InvalidRequest
from cli.option_types import WholeNumber

EXISTING = click.Path(exists=True, dir_okay=False)


@click.command("verify-verdict")
@click.argument("files", metavar="[FILE]...", nargs=-1, type=EXISTING)
@click.option("--signers", type=EXISTING, help="Keys that may sign, as ssh-keygen's allowed signers.")
@click.option("--revoked", type=EXISTING, help="Public keys, or fingerprints, that may no longer sign.")
@click.option(
    "--host-key", "host_keys", multiple=True, metavar="SHA256:...", help="A host key of the boxes; repeatable."
)
@click.option("--nonce", metavar="HEX", help="The nonce that the newest verdict has to answer.")
@click.option(
    "--newest", type=WholeNumber(1, 999_999_999), default=1, help="The number that the newest verdict has at least."
)
@click.option("--complete", is_flag=True, help="Refuse a chain without its first verdict.")
@click.option("--program", is_flag=True, help="Print the program that verifies without Rigwright.")
def verify_verdict(
    files: tuple[str, ...],
    signers: str | None,
    revoked: str | None,
    host_keys: tuple[str, ...],
    nonce: str | None,
    newest: int,
    complete: bool,
    program: bool,
) -> None:
    """Verify signed verdicts.

    FILEs are verdicts of `rigwright check --sign`, of one or several boxes. Those of a box are verified as a chain.
    No host is reached.
    Exit status: 0, all boxes conform. 1, one does not. 2, a verdict or a chain is refused.
    Example: rigwright verify-verdict --signers signers verdicts/box1/*.jsonl
    """
    from checks import verdict_verifier

    if program:
        click.echo(Path(verdict_verifier.__file__).read_text(), nl=False)
        return
    if not files or not signers:
        raise InvalidRequest("verify-verdict needs FILE and --signers, or --program")
    words = [f"--signers={signers}", f"--newest={newest}", *(["--complete"] if complete else [])]
    words += [f"--{name}={value}" for name, value in (("revoked", revoked), ("nonce", nonce)) if value is not None]
    words += [f"--host-key={value}" for value in host_keys]
    sys.exit(verdict_verifier.main([*words, "--", *files]))
