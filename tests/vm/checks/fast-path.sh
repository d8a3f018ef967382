# init: script
# limit: 2400
# shows: forwarding by eBPF: semantics, statistics, life
tests tests/integration/topos -k "fast_path or forwarder or carrier"
