"""Opus on demand as an OpenFlow app of your own, in the loop of a run: the same file under os-ken and under Ryu.

Start it first, then a run that leaves the switches to it and asks it for circuits:

    scripts/osken-manager docs/examples/my_opus_app.py              # or scripts/ryu-manager
    sudo railyard run rails --controller remote --workload smoke --modes on-demand

Before each phase the run asks for the circuits of a group, when nothing is in flight on the ports that change. The app
decides: here it takes the circuits that would serve, as Opus does. It says that they stand when the switch has
confirmed them (a barrier reply), and the run then looks at the switch itself before it lets ranks send.
"""

import importlib
import sys

from railyard.app_channel import AppChannel

FRAMEWORK = "ryu" if "ryu.base.app_manager" in sys.modules else "os_ken"


def of_framework(name):
    """A module of the framework that loads this app."""
    return importlib.import_module(f"{FRAMEWORK}.{name}")


app_manager, handler, ofp_event = map(of_framework, ("base.app_manager", "controller.handler", "controller.ofp_event"))
hub, ofproto = of_framework("lib.hub"), of_framework("ofproto.ofproto_v1_4")
App = app_manager.RyuApp if FRAMEWORK == "ryu" else app_manager.OSKenApp
PRIORITY = 10


class OpusApp(App):
    """Sets up the circuits that a run asks for."""

    OFP_VERSIONS = [ofproto.OFP_VERSION]  # noqa: RUF012 - the framework's own convention

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.switches = {}  # datapath id -> datapath
        self.dpids = {}  # name of a switch -> datapath id
        self.waiting = {}  # xid of a barrier -> the message to answer, and the barriers that it still waits for
        self.channel = AppChannel()

    def start(self):
        """Listen to runs beside the framework's own loop."""
        super().start()
        hub.spawn(self.listen)

    def listen(self):
        """Do what runs ask for, one after another."""
        for message in self.channel.messages():
            if message["op"] == "hello":
                self.begin(message)
            elif message["op"] == "request":
                self.change(message)

    @handler.set_ev_cls(ofp_event.EventOFPSwitchFeatures, handler.CONFIG_DISPATCHER)
    def switch_joined(self, event):
        self.switches[event.msg.datapath_id] = event.msg.datapath

    @handler.set_ev_cls(ofp_event.EventOFPBarrierReply, handler.MAIN_DISPATCHER)
    def barrier_replied(self, event):
        """A switch holds what it was sent: when all have confirmed, so does this app."""
        message, barriers = self.waiting.pop(event.msg.xid, (None, None))
        if message is not None:
            barriers.discard(event.msg.xid)
            if not barriers:
                self.channel.up(message)

    def begin(self, hello):
        """Make a new fabric ready: electrical switches forward by address, optical ones have no circuit yet."""
        self.dpids = {switch["name"]: switch["dpid"] for switch in hello["plan"]["switches"]}
        flows = {}
        for switch in hello["plan"]["switches"]:
            ports = switch["ports"] if switch["kind"] == "electrical" else []
            flows[switch["name"]] = [({"eth_dst": port["mac"]}, port["number"]) for port in ports]
        self.install(hello, flows)

    def change(self, request):
        """Set up the circuits of a request on the ports that change; a new flow takes the place of a port's old one."""
        changed = set(request["ports"])
        peers = {port: peer for a, b in request["circuits"] for port, peer in ((a, b), (b, a)) if port in changed}
        flows = [({"in_port": port}, peers.get(port)) for port in sorted(changed)]
        self.install(request, {request["switch"]: flows})

    def install(self, message, flows):
        """Send each switch its flows, (match, output port or None for none any more), and answer when all hold them."""
        missing = [name for name in flows if self.dpids.get(name) not in self.switches]
        if missing:
            self.channel.refuse(message, f"{missing[0]} has not connected to this app")
            return
        pending, orders = set(), []
        for name, rules in flows.items():
            datapath = self.switches[self.dpids[name]]
            messages = [flow_mod(datapath, match, port) for match, port in rules]
            messages.append(datapath.ofproto_parser.OFPBarrierRequest(datapath))
            for each in messages:
                datapath.set_xid(each)
                each.serialize()
            pending.add(messages[-1].xid)
            orders.append((datapath, b"".join(bytes(each.buf) for each in messages)))
        self.waiting.update(dict.fromkeys(pending, (message, pending)))
        for datapath, order in orders:
            datapath.send(order)  # in one piece, which takes less time than message by message


def flow_mod(datapath, match, port):
    """The flow that sends what matches out of ``port``, or (None) the order to remove the flows of this match."""
    protocol, parser = datapath.ofproto, datapath.ofproto_parser
    if port is None:
        fields = {"command": protocol.OFPFC_DELETE, "out_port": protocol.OFPP_ANY, "out_group": protocol.OFPG_ANY}
        return parser.OFPFlowMod(datapath, match=parser.OFPMatch(**match), **fields)
    apply = parser.OFPInstructionActions(protocol.OFPIT_APPLY_ACTIONS, [parser.OFPActionOutput(port)])
    return parser.OFPFlowMod(datapath, priority=PRIORITY, match=parser.OFPMatch(**match), instructions=[apply])
