"""Where the locks of a host lie: in one folder that nobody but root can open anything in.

Whoever can open a file can lock it, for reading too (flock(2)): a lock on what others may read is theirs to hold, for
as long as they like. A process without root's rights that has to hold one is handed the open file.
"""

from __future__ import annotations

LOCKS = "/run/rigwright/locks"
DEPLOY_LOCK = f"{LOCKS}/lease"  # where earlier controllers look, too
