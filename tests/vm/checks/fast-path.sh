# init: script
# limit: 2400
# shows: forwarding by eBPF and by tc filters before the kernel datapath: semantics, statistics, carrier, life
tests tests/integration/topos -k "fast_path or forwarder or carrier"
