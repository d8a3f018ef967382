"""A solution of lab rotor."""


def rotor_s(ranks: int, pair_s: float, delay_s: float) -> float:
    return (ranks - 1) * (pair_s + delay_s)


def ring_s(ranks: int, pair_s: float) -> float:
    return ranks**2 / 4 * pair_s


def faster(ranks: int, pair_s: float, delay_s: float) -> str:
    return "rotor" if rotor_s(ranks, pair_s, delay_s) < ring_s(ranks, pair_s) else "ring"


def mode_for_experts(delay_s: float) -> str:
    return "rotor" if 1.3053 + 33 * delay_s < 2.178 else "on-demand"
