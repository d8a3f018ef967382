# init: script
# limit: 1500
# shows: links that delay and lose packets, with netem
python -c 'from topos.kernel.path_latency import unsupported_reason as why; assert why() is None, why()'
tests tests/integration/topos/test_link_delays.py tests/integration/measure/test_link_delay_log.py
