# init: script
# limit: 600
# shows: a run cleans up after an ovs-vswitchd that was killed, whose datapath stays in the kernel
tests tests/integration/controllers/test_controllers_live.py -k dies_in_the_dark
