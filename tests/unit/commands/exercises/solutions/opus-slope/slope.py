"""A solution of lab opus-slope."""

WINDOW_S = 0.801
"""The forward pass of the last stage that gathers nothing: the change before the pass after it hides in it."""


def smoke_s(delay_s: float) -> float:
    return 1.2734 + 2 * delay_s


def llama_s(delay_s: float) -> float:
    return 10.178 + growth_s(2, delay_s)


def changes(microbatches: int) -> int:
    return 2 * microbatches + 2


def growth_s(microbatches: int, delay_s: float) -> float:
    return changes(microbatches) * delay_s - min(delay_s, WINDOW_S)
