"""System users and groups of a rig's services."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

from rigwright.model.gateway_schema import Gateway
from rigwright.model.instance import Instance
from rigwright.model.monitoring_schema import Monitoring, service_users

# useradd(8): the most characters of a name
USER_LENGTH = 32


@dataclass(frozen=True)
class ServiceAccounts:
    """Names of the system users of one rig; each user has a group of the same name."""

    prefix: str
    """The inventory's `service_user`, which begins all of them."""

    def of_instance(self, instance: Instance) -> str:
        """The user of one instance, which no other instance has."""
        name = f"{self.prefix}-{instance.name}"
        if len(name) < USER_LENGTH:
            return name
        # the digest keeps shortened names apart; a name that is not shortened is never as long
        return f"{name[: USER_LENGTH - 9]}-{hashlib.sha256(name.encode()).hexdigest()[:8]}"

    @property
    def gateway(self) -> str:
        """The gateway's user; its group may connect to instances."""
        return self._of_service("gateway")

    @property
    def router(self) -> str:
        """The user of the gateway's router."""
        return self._of_service("router")

    @property
    def doctor(self) -> str:
        """The user of plugins' self-tests: an instance's user could signal the instance."""
        return self._of_service("doctor")

    @property
    def hub(self) -> str:
        """The user of the hub's own client."""
        return self._of_service("hub")

    @property
    def pull(self) -> str:
        """The user that fetches signed generations."""
        return self._of_service("pull")

    def _of_service(self, name: str) -> str:
        return f"{self.prefix[: USER_LENGTH - 9]}_{name}"

    def exporters(self, monitoring: Monitoring | None, *, cards: bool) -> dict[str, str]:
        """Service of the monitoring -> its user.

        Args:
            monitoring: As it is declared.
            cards: Whether the rig declares any.
        """
        return service_users(monitoring, self.prefix, cards=cards)

    def socket_groups(self, instance: Instance, gateway: Gateway | None) -> tuple[str, ...]:
        """The groups that may connect to an instance's socket: its own, and the gateway's after its first answer."""
        return (self.of_instance(instance), *([self.gateway] if gateway else []))
