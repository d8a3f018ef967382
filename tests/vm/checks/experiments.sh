# init: script
# limit: 3600
# shows: the tests of whole experiments and of the scripts
tests tests/integration/experiments tests/integration/scripts
