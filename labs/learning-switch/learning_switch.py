"""Your switch: an app of os-ken that learns where hosts are. Complete the method packet_in."""

from os_ken.base import app_manager
from os_ken.controller import ofp_event
from os_ken.controller.handler import CONFIG_DISPATCHER, MAIN_DISPATCHER, set_ev_cls
from os_ken.lib.packet import ethernet, packet
from os_ken.ofproto import ofproto_v1_3


class LearningSwitch(app_manager.OSKenApp):
    """One rail switch, whose frames all come to this app at first."""

    OFP_VERSIONS = (ofproto_v1_3.OFP_VERSION,)

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.places = {}  # address of a host -> port

    @set_ev_cls(ofp_event.EventOFPSwitchFeatures, CONFIG_DISPATCHER)
    def switch_joined(self, event):
        """The switch has joined: frames that no flow matches come to this app."""
        datapath = event.msg.datapath
        self.add_flow(datapath, 0, datapath.ofproto_parser.OFPMatch(), datapath.ofproto.OFPP_CONTROLLER)

    @set_ev_cls(ofp_event.EventOFPPacketIn, MAIN_DISPATCHER)
    def packet_in(self, event):
        """A frame has come that no flow matches."""
        message = event.msg
        datapath, in_port = message.datapath, message.match["in_port"]
        frame = packet.Packet(message.data).get_protocol(ethernet.ethernet)
        # frame.src and frame.dst are addresses, such as "02:00:00:00:00:01".
        #
        # 1. Send the frame to all other ports:
        #    self.send(datapath, message, in_port, datapath.ofproto.OFPP_FLOOD)
        # 2. Remember in self.places at which port frame.src is.
        #    If the port of frame.dst is known, send the frame there alone.
        # 3. Add a flow, so that the next frame does not come here. A match is
        #    datapath.ofproto_parser.OFPMatch(in_port=..., eth_src=..., eth_dst=...)
        # 4. If frame.src was at another port before, old flows lead to the wrong port.

    def add_flow(self, datapath, priority, match, port):
        """From now on the switch sends frames that match out of ``port`` by itself."""
        protocol, parser = datapath.ofproto, datapath.ofproto_parser
        actions = [parser.OFPActionOutput(port, protocol.OFPCML_NO_BUFFER)]
        apply = [parser.OFPInstructionActions(protocol.OFPIT_APPLY_ACTIONS, actions)]
        datapath.send_msg(parser.OFPFlowMod(datapath, priority=priority, match=match, instructions=apply))

    def remove_flows(self, datapath, match):
        """Remove all flows that compare at least what ``match`` does, with the same values."""
        protocol, parser = datapath.ofproto, datapath.ofproto_parser
        everywhere = {"out_port": protocol.OFPP_ANY, "out_group": protocol.OFPG_ANY, "table_id": protocol.OFPTT_ALL}
        datapath.send_msg(parser.OFPFlowMod(datapath, command=protocol.OFPFC_DELETE, match=match, **everywhere))

    def send(self, datapath, message, in_port, port):
        """Send the frame of ``message`` out of ``port``."""
        protocol, parser = datapath.ofproto, datapath.ofproto_parser
        actions, data = [parser.OFPActionOutput(port)], message.data
        datapath.send_msg(parser.OFPPacketOut(datapath, protocol.OFP_NO_BUFFER, in_port, actions, data))
