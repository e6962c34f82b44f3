"""Have one group of the lock's packages on every host: the part of a role that installs from them."""

import os

from pyinfra import host

from roles.artefact_fetch import ensure_fetched, install_fetch_programs
from roles.rig_lookup import rig_of_host

rig = rig_of_host(host)
install_fetch_programs(rig)
ensure_fetched(rig, rig.lock.groups[os.environ["GROUP"]], "Fetch the packages")
