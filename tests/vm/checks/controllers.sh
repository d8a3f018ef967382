# init: script
# limit: 2400
# shows: the tests of controllers, with os-ken and ryu
tests tests/integration/controllers -k "not dies_in_the_dark"
