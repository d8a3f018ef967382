"""Edge runs without packets: the policy layer in virtual time, and what transfers take by formula."""
