# init: script
# limit: 2400
# shows: the tests of what is measured on the machine
tests tests/integration/measure --ignore tests/integration/measure/test_link_delay_log.py
