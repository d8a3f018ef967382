# init: script
# limit: 3600
# shows: commands, Python interface, faults, walkthrough
tests tests/integration/commands tests/integration/railyard tests/integration/test_campaign.py \
    tests/integration/test_walkthrough.py
