"""Frames of your own, made with scapy: run ``listen PORT`` on one host, then ``send PORT MAC`` on another.

PORT is a port of the host (g2-r0), MAC the address of the port that is to get them.
"""

import sys

from scapy.all import Ether, get_if_hwaddr, sendp, sniff

MINE = 0x88B5  # an EtherType for experiments (IEEE 802): no host answers it
verb, port, *mac = sys.argv[1:]
if verb == "listen":
    for frame in sniff(iface=port, count=3, timeout=10, lfilter=lambda frame: frame.type == MINE):
        print(f"{port} got {frame.payload.load.decode()} from {frame.src}")
else:
    head = Ether(src=get_if_hwaddr(port), dst=mac[0], type=MINE)
    sendp([head / f"frame {number}" for number in range(3)], iface=port, verbose=False)
