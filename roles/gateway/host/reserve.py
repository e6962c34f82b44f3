"""Keeps other users from listening at addresses, and listens at none itself. Runs on the host.

Its arguments are addresses with ports, as `[::]:8000` or `127.0.0.1:8000`. A socket that is bound without SO_REUSEADDR
keeps the address (bind(2)); one that does not listen has the kernel refuse connections, so that a client whose name
leads to several addresses goes on to the next. A host without an address, or without IPv6, has nothing to keep there.
An address that another process has is tried again until that process has gone.
"""

import errno
import signal
import socket
import sys
import time

IP_FREEBIND = 15  # linux/in.h; of IPv6 sockets, too
AGAIN = 1.0  # seconds between two tries


def bind_socket(place: str) -> socket.socket:
    """A socket that keeps an address.

    Raises:
        OSError: it cannot be had.
    """
    host, _, port = place.rpartition(":")
    family = socket.AF_INET6 if host.startswith("[") else socket.AF_INET
    one = socket.socket(family, socket.SOCK_STREAM)
    try:
        if family == socket.AF_INET6:
            one.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        one.setsockopt(socket.IPPROTO_IP, IP_FREEBIND, 1)
        one.bind((host.strip("[]"), int(port)))
    except OSError:
        one.close()
        raise
    return one


def reserve(places: list[str]) -> dict[str, socket.socket]:
    """Keep all of them; returns once none is left that can be had."""
    kept, reported = {}, set()
    missing = list(places)
    while missing:
        for place in list(missing):
            try:
                kept[place] = bind_socket(place)
                missing.remove(place)
            except OSError as error:
                if error.errno != errno.EADDRINUSE:
                    missing.remove(place)
                if place not in reported:
                    sys.stderr.write(f"{place}: {error.strerror}\n")
                    reported.add(place)
        if missing:
            time.sleep(AGAIN)
    return kept


def main() -> None:
    """Keep what the arguments name until a signal ends the process."""
    kept = reserve(sys.argv[1:])
    signal.pause()
    del kept


if __name__ == "__main__":
    main()
