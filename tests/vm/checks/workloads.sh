# init: script
# limit: 2400
# shows: the tests of agents, collectives and jobs
tests tests/integration/workloads
