"""The engine under every policy: jobs, requests and failures in, actions out; no clock and no I/O."""
