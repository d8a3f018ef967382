"""Names that many bars share, as numbers."""

from __future__ import annotations

MOST, LONGEST = 20_000, 160
"""Different labels of a point (further ones are all ``OTHERS``), and characters of one."""
FIRST = "several, each shorter than a pixel"
OTHERS = "(too many names to show)"


class Labels:
    """Texts and their numbers; number 0 is ``FIRST``."""

    def __init__(self) -> None:
        self.texts = [FIRST]
        self._numbers: dict[str, int] = {}

    def __call__(self, text: str) -> int:
        """The number of ``text``, cut to ``LONGEST`` characters."""
        number = self._numbers.get(text)
        return self._new(text) if number is None else number

    def _new(self, text: str) -> int:
        if len(self.texts) > MOST:
            return MOST
        text = text if len(text) <= LONGEST else f"{text[: LONGEST - 3]}..."
        if text not in self._numbers:
            self._numbers[text] = len(self.texts)
            self.texts.append(text if len(self.texts) < MOST else OTHERS)
        return self._numbers[text]
