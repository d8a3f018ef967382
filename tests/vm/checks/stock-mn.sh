# init: script
# limit: 900
# shows: stock "mn --custom" starts and stops the topologies
tests tests/integration/topos/test_stock_mn.py
