"""Names that many bars share, as numbers."""

from __future__ import annotations

FIRST = "several, each shorter than a pixel"


class Labels:
    """Texts and their numbers; number 0 is ``FIRST``."""

    def __init__(self) -> None:
        self.texts = [FIRST]
        self._numbers: dict[str, int] = {}

    def __call__(self, text: str) -> int:
        """The number of ``text``."""
        number = self._numbers.get(text)
        if number is None:
            number = self._numbers[text] = len(self.texts)
            self.texts.append(text)
        return number
