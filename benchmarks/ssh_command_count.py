"""Remote commands, counted where they arrive: by the hosts' sshd, in the same way for every program."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from lab.hosts import LabHost

# at this level sshd logs a line a session: a command, a shell or a subsystem such as sftp
LOUD = "echo 'LogLevel VERBOSE' > /etc/ssh/sshd_config.d/bench.conf && systemctl reload ssh"
SEEN = "journalctl --sync && journalctl --lines=0 --show-cursor | sed -n 's/^-- cursor: //p'"
# looking is a session too: it is the one from the port that this shell was asked for from
SINCE = (
    "journalctl --sync && journalctl --unit=ssh --output=cat --after-cursor={cursor} "
    '| grep "^Starting session: " | grep -cv "port $(echo $SSH_CLIENT | cut -d " " -f 2) " || true'
)


@dataclass
class Count:
    """Sessions by host."""

    by_host: dict[str, int] = field(default_factory=dict)

    @property
    def total(self) -> int:
        """Of all hosts."""
        return sum(self.by_host.values())


def prepare(hosts: Sequence[LabHost]) -> None:
    """Have the hosts' sshd log each session."""
    for host in hosts:
        host.run(LOUD)


@contextmanager
def counted(hosts: Sequence[LabHost]) -> Iterator[Count]:
    """Count the sessions that the block opens on prepared hosts; the count is there after it."""
    cursors = {host.name: host.run(SEEN).strip() for host in hosts}
    count = Count()
    yield count
    for host in hosts:
        count.by_host[host.name] = int(host.run(SINCE.format(cursor=shlex.quote(cursors[host.name]))))
