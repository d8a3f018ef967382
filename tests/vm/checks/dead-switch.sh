# init: script
# limit: 600
# shows: a run cleans up after a killed ovs-vswitchd
tests tests/integration/controllers/test_controllers_live.py -k dies_in_the_dark
