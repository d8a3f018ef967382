"""A Ryu app of your own instead of our controller: fixed circuits between neighbours on every optical rail.

Start it first, then a run that leaves the switches to it:

    RAILYARD_PLAN=results/plan.json .venv/bin/python docs/examples/my_ryu_app.py
    sudo railyard run rails --controller remote --modes native ...

(Ryu 4.34 of 2020 imports a name that current versions of eventlet no longer have, so Ryu's own ``ryu-manager`` does not
start. The lines before the Ryu imports and the last lines of this file repair that; ``scripts/ryu-manager`` starts an
app without them.)

The plan is plain JSON (``topos/plan.py``): every switch with its datapath id, kind and ports. Nothing else of Railyard
is needed here. With os-ken, write ``os_ken`` for ``ryu`` and ``OSKenApp`` for ``RyuApp``, and start the app by
``scripts/osken-manager`` instead of by the last lines.

The app listens on loopback only, where the run looks for it. Ryu itself would listen on every address of the machine,
on two ports, and a message with a length of zero keeps its parsers busy for ever. It is not maintained any more: write
an app of your own for os-ken, and let it listen on loopback too.

An optical switch drops packets without a flow, so a circuit between two ports is two flows, one for each direction. An
electrical switch forwards by address: one flow for each host port.
"""

from __future__ import annotations

import json
import os
import sys

import eventlet.wsgi

if not hasattr(eventlet.wsgi, "ALREADY_HANDLED"):
    eventlet.wsgi.ALREADY_HANDLED = object()

from ryu.base import app_manager
from ryu.controller import ofp_event
from ryu.controller.handler import CONFIG_DISPATCHER, set_ev_cls
from ryu.ofproto import ofproto_v1_4


class NeighbourCircuits(app_manager.RyuApp):
    """Joins the highest port of each GPU to the lowest port of the next GPU on its rail, all the way round."""

    OFP_VERSIONS = [ofproto_v1_4.OFP_VERSION]  # noqa: RUF012 - Ryu's own convention

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.plan_path = os.environ["RAILYARD_PLAN"]

    @set_ev_cls(ofp_event.EventOFPSwitchFeatures, CONFIG_DISPATCHER)
    def switch_joined(self, event):
        """Install the flows of a switch that has connected."""
        datapath = event.msg.datapath
        with open(self.plan_path, encoding="utf-8") as file:  # written by the run, just before its switches call
            switches = {switch["dpid"]: switch for switch in json.load(file)["switches"]}
        switch = switches.get(event.msg.datapath_id)
        if switch is None:
            return
        if switch["kind"] == "electrical":
            for port in switch["ports"]:
                self.forward(datapath, {"eth_dst": port["mac"]}, port["number"])
            return
        for a, b in ring(switch["ports"]):
            self.forward(datapath, {"in_port": a}, b)
            self.forward(datapath, {"in_port": b}, a)

    def forward(self, datapath, match, port):
        """Install a flow that sends matching packets out of ``port``."""
        ofproto, parser = datapath.ofproto, datapath.ofproto_parser
        actions = [parser.OFPActionOutput(port)]
        datapath.send_msg(
            parser.OFPFlowMod(
                datapath,
                priority=10,
                match=parser.OFPMatch(**match),
                instructions=[parser.OFPInstructionActions(ofproto.OFPIT_APPLY_ACTIONS, actions)],
            )
        )


def ring(ports):
    """The circuits: highest lane of each GPU to lane 0 of the next, in order of rank."""
    lanes = {}
    for port in ports:
        lanes.setdefault(port["rank"], {})[port["lane"]] = port["number"]
    ranks = sorted(lanes)
    following = ranks[1:] + ranks[:1]
    return [(lanes[rank][max(lanes[rank])], lanes[peer][0]) for rank, peer in zip(ranks, following, strict=True)]


if __name__ == "__main__":
    from ryu.cmd.manager import main

    loopback = ["--ofp-listen-host", "127.0.0.1", "--ofp-tcp-listen-port", "6653"]
    sys.exit(main([__file__, *loopback, *sys.argv[1:]]))
