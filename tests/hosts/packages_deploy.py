"""Have one group of the lock's packages on every host: what a role does that installs from them."""

import os

from pyinfra import host

from roles.fetching import brought, programs
from roles.rig import rig_of

rig = rig_of(host)
programs(rig)
brought(rig, rig.lock.groups[os.environ["GROUP"]], "Fetch the packages")
