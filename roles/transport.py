"""The SSH transport: paramiko's, without Nagle's algorithm.

paramiko leaves TCP_NODELAY unset; against a delayed acknowledgement that costs about 40 ms a command, 2 ms without.
"""

from __future__ import annotations

import socket
from typing import Any

import paramiko


def nodelay(sock: Any, **options: Any) -> paramiko.Transport:
    """A paramiko `transport_factory`; a ProxyCommand is no socket and is left as it is."""
    if isinstance(sock, socket.socket):
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return paramiko.Transport(sock, **options)
