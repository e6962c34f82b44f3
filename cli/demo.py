"""`rigwright demo`: the whole path on a throwaway host of this machine."""

from __future__ import annotations

import subprocess
import sys
import time

import click

from cli.exit_codes import NotAsDeclared
from cli.prog_name import prog_name
from lab import base_images, machine_requirements
from lab.hosts import HostSpec
from lab.machine_requirements import UnsupportedMachine
from lab.throwaway_lab import ThrowawayLab
from rigwright.project_root import ROOT
from roles.progress import progress

NAME = "demo"
HOST = "h1"
INVENTORY = ROOT / "inventory" / "demo.py"
PORT = 8020


@click.command()
@click.option("--release", type=click.Choice(sorted(base_images.RELEASES)), default="debian-12", show_default=True)
def demo(release: str) -> None:
    """Try it on a throwaway host.

    Boots a host on this machine, deploys a rig with a prebuilt llama.cpp, checks it and asks its model a question. The
    first run takes 77 seconds on two idle cores, later ones 23.
    Example: rigwright demo
    """
    started = time.monotonic()
    lab = ThrowawayLab(NAME)
    try:
        machine_requirements.require_packages()
        found = lab.exists and bool(lab.hosts) and all(host.is_reachable() for host in lab.hosts)
        if found and lab.hosts[0].spec.release != release:
            raise click.ClickException(
                f"a demo on {lab.hosts[0].spec.release} is up: end it with `{prog_name()} lab --name {NAME} down` first"
            )
        if not found:
            lab.down()  # remains of a crash or a restart of this machine
            with progress.task("demo", f"booting a {release} host"):
                lab.up([HostSpec(HOST, release)])
    except (UnsupportedMachine, TimeoutError, RuntimeError) as error:
        raise click.ClickException(str(error)) from None
    booted = time.monotonic()
    inventory = str(INVENTORY)
    if _run_verb("deploy", inventory):
        raise NotAsDeclared(f"the demo's deploy failed (see above); fix that, then run {prog_name()} demo again")
    deployed = time.monotonic()
    if _run_verb("check", inventory):
        raise NotAsDeclared("a check of the demo fails (see above)")
    checked = time.monotonic()
    answer = ask_model(lab, "Are you there?")
    if not answer:
        raise NotAsDeclared("the model returned no answer")
    click.echo(
        f"\nAsked the model on {HOST}: Are you there?\nIt answered: {answer}\n\n"
        f"{'Found' if found else 'Booted'} a {lab.host(HOST).spec.release} host ({booted - started:.0f} s), deployed "
        f"the rig of inventory/demo.py ({deployed - booted:.0f} s) and checked it ({checked - deployed:.0f} s).\n\n"
        f"  look around       {prog_name()} lab --name {NAME} ssh {HOST}\n"
        f"  the service       ssh {HOST}: systemctl status rigwright-chat; journalctl -u rigwright-chat\n"
        f"  ask it            {prog_name()} lab --name {NAME} ssh {HOST} 'curl -s http://127.0.0.1:{PORT}/v1/models "
        f'-H "Authorization: Bearer $(cat /etc/rigwright/credentials/chat.api-key)"\'\n'
        f"  what was written  {prog_name()} lab --name {NAME} diff {HOST}\n"
        f"  run it again      {prog_name()} deploy inventory/demo.py; {prog_name()} check inventory/demo.py\n"
        f"  tear it down      {prog_name()} lab --name {NAME} down"
    )


def _run_verb(verb: str, inventory: str) -> int:
    return subprocess.run([sys.executable, str(ROOT), verb, inventory], check=False).returncode


def ask_model(lab: ThrowawayLab, question: str) -> str:
    """Ask the served model through an SSH tunnel, with the OpenAI SDK, as a client of the box would."""
    from openai import OpenAI

    from lab.ssh_tunnel import forward_port

    host = lab.host(HOST)
    key = host.run("cat /etc/rigwright/credentials/chat.api-key").strip()
    with forward_port(host, PORT) as port:
        client = OpenAI(base_url=f"http://127.0.0.1:{port}/v1", api_key=key)
        reply = client.chat.completions.create(model="tiny-rig", messages=[{"role": "user", "content": question}])
    return (reply.choices[0].message.content or "").strip()
