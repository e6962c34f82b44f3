"""What each part of the survey cannot see, in words for people: a check that is green says nothing of it."""

from __future__ import annotations

BLIND = {
    "about": "a clock that is wrong together with this machine's",
    "accounts": "accounts of a directory service that lists them to nobody (LDAP, SSSD without enumeration)",
    "rights": "rules that ask, and take any answer; programs that run as root in folders where few lie",
    "units": "what a unit's own program does once it runs; units of users' own managers that do not touch ours",
    "processes": "bytes of memory that were changed in place, without a file: what is mapped is judged by its file",
    "serving": "what an instance did between two looks",
    "escapes": "a hole that is not among those tried: a sandbox is tried, not proven",
    "trees": "bytes that a disk changed beneath a file whose inode, size and times stayed: --deep reads them",
    "generations": "a change that was made and undone between two looks",
    "ways": "mounts in namespaces of others that none of our processes is in",
    "programs": "what a program would say to somebody else than nobody",
    "compiled": "what an engine has compiled into memory alone",
    "weights": "bytes that a disk changed beneath a file whose inode, size and times stayed: --deep reads them",
    "ours": "a secret that somebody has copied away",
    "ground": "what was written to a journal that has been cut since; disks that hide their errors",
    "requests": "answers that are wrong only to other questions, or to clients that come from elsewhere",
    "reach": "what leads to us from other machines, or from another network on this one (a container's)",
    "gates": "requests that were answered before we looked",
    "firewall": "filters of other machines, of BPF programs, and those that only the next boot loads",
    "kernel": "a kernel or module that lies: what it says of itself is what is seen",
    "boot": "firmware, and what it starts instead; settings that are typed in at a boot loader's prompt",
    "settings": "files of programs that we do not know to read settings there",
    "cards": "faults that a card does not report, and what happened before the kernel's log begins",
    "packages": "packages that were installed past dpkg",
    "files": "files that packages call configuration, where none of ours stands on them",
    "archive": "an archive's signer who signs other packages than he should",
    "loader": "libraries that a program names by their paths, or asks for by itself once it runs",
    "python": "a module that a package has brought and that somebody has changed: M01 looks at those",
}
