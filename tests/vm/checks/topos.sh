# init: script
# limit: 2400
# shows: emulation, many ports, racks, edge networks
tests tests/integration/topos -k "not (fast_path or forwarder or carrier or stock_mn or link_delays)"
