from controllers.policies.lumion import LumionPolicy

CHIPS_PER_SERVER = 4


class NearestSpare(LumionPolicy):
    def replace(self, groups, dead, free):
        near = []
        for group in groups:
            if dead in group.members:
                at = group.members.index(dead)
                near += [group.members[at - 1], group.members[(at + 1) % len(group.members)]]

        def length(spare):
            return sum(abs(spare // CHIPS_PER_SERVER - chip // CHIPS_PER_SERVER) for chip in near)

        return {dead: min(free, key=lambda spare: (length(spare), spare))} if free else {}
