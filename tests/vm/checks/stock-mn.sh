# init: script
# limit: 1500
# shows: stock "mn --custom" with each topology
tests tests/integration/topos/test_stock_mn.py
service openvswitch-switch start
mn --custom topos/rails.py --topo rails,servers=2,gpus=2,fabric=electrical --switch fabric --controller none \
    <<<pingall 2>&1 | tee /tmp/said
service openvswitch-switch stop
says /tmp/said 'g0 -> X g2 X' 'g1 -> X X g3' 'completed in'
