"""The switch of stock Mininet for our topologies: ``mn --custom topos/rails.py ... --switch fabric``."""

from __future__ import annotations

import os
from shutil import which
from typing import Any

from mininet.log import error
from mininet.node import OVSSwitch


class StockSwitch(OVSSwitch):  # type: ignore[misc]
    """A bridge of the system's Open vSwitch: an electrical switch forwards by itself, an optical one stays dark.

    A switch that does not learn passes what a controller installs, and nothing without one. Where the kernel has no
    module ``openvswitch``, Open vSwitch switches in userspace.
    """

    def __init__(self, name: str, kind: str = "electrical", **params: Any) -> None:
        learning = params.get("learning", kind == "electrical")
        options = {"failMode": "standalone" if learning else "secure"}
        if not os.path.isdir("/sys/module/openvswitch"):
            options["datapath"] = "user"
        super().__init__(name, **(options | params))

    def start(self, controllers: Any) -> None:
        """Start the bridge, and have the hosts at its ports finish their checksums where nothing else would.

        Userspace finishes those of a virtual link with userspace-tso-enable alone (scripts/setup.sh sets it), and never
        those of packets that a controller sends on. Receivers discard TCP and UDP with an unfinished one, but no ping.
        """
        super().start(controllers)
        finished = "true" in self.cmd("ovs-vsctl --if-exists get Open_vSwitch . other_config:userspace-tso-enable")
        if self.datapath == "user" and (controllers or not finished):
            if which("ethtool") is None:
                error(f"*** {self.name}: TCP and UDP will be lost without ethtool; install the package ethtool\n")
            for link in (intf.link for intf in self.intfList() if intf.link is not None):
                for end in (link.intf1, link.intf2):
                    end.node.cmd("ethtool", "-K", end.name, "tx", "off")
