# init: script
# limit: 2400
# shows: the other tests of the network: emulation, switches with many ports, racks, edge networks
tests tests/integration/topos -k "not (fast_path or forwarder or carrier or stock_mn or link_delays)"
