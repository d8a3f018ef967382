"""Your policy: it chooses the spare that takes the place of a dead chip."""

from controllers.policies.lumion import LumionPolicy

CHIPS_PER_SERVER = 4  # chips 0 to 3 are in server 0, 4 to 7 in server 1, ...


class NearestSpare(LumionPolicy):
    """Takes the spare whose fibres to the neighbours of the dead chip are the shortest."""

    def replace(self, groups, dead, free):
        """The answer is {dead: spare}, or {} if no spare can be used; the job stops then.

        groups: the rings of the job. group.members are the chips of one, in the order of the ring.
        dead: the chip that has died. free: the spares that could take its place.
        """
        raise NotImplementedError("choose a spare")
