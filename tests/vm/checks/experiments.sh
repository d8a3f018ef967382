# init: script
# limit: 3600
# shows: the tests of experiments and of the scripts
tests tests/integration/experiments tests/integration/scripts
