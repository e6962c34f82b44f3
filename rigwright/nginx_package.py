"""nginx as distributions package it, for weight shares and gateways: each runs one of its own."""

from __future__ import annotations

PACKAGE = "nginx"
PROGRAM = "/usr/sbin/nginx"
# The units that the package brings, and starts on port 80 as it is installed.
PACKAGED_UNIT = "nginx.service"
# The files that the package's scripts make, and do not take away (nginx-common.postinst and .postrm of Debian 12).
LEFTOVER_FILES = ("/var/www/html/index.nginx-debian.html",)
# The words that a file of nginx's is given to, for its own opinion. As user `nobody`, which can write only to its own
# folder: as root it would make logs where it was compiled to.
PROOF = (
    'sh -c \'p=$(mktemp -d) && chown nobody "$p" || exit 1; setpriv --reuid=nobody --regid=nogroup --clear-groups '
    f'--no-new-privs {PROGRAM} -t -q -p "$p/" -c "$1"; s=$?; rm -rf "$p"; exit $s\' proof'
)
