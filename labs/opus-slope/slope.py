"""Lab opus-slope: replace each line `raise` by your law; README.md says what is asked. All times are in seconds."""


def smoke_s(delay_s: float) -> float:
    """The time of a step of job `smoke` on demand."""
    raise NotImplementedError("write the law of smoke")


def llama_s(delay_s: float) -> float:
    """The time of a step of job `llama3-8b-16` on demand."""
    raise NotImplementedError("write the law of llama3-8b-16")


def changes(microbatches: int) -> int:
    """The reconfigurations in a step of the job in job.yaml, with so many microbatches."""
    raise NotImplementedError("count the reconfigurations")


def growth_s(microbatches: int, delay_s: float) -> float:
    """Seconds that the delay adds to a step of that job on demand; there are two microbatches or more."""
    raise NotImplementedError("write the law of the job that was changed")
