# init: script
# limit: 2400
# shows: the tests of the controllers, with os-ken and with ryu
tests tests/integration/controllers -k "not dies_in_the_dark"
