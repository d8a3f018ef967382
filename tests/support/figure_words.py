"""What is written in a figure."""

from __future__ import annotations

from matplotlib.figure import Figure


def words(figure: Figure) -> list[str]:
    """Every text of a figure: titles, ticks, notes and legends."""
    texts = [text for axes in figure.axes for text in (*axes.texts, *axes.get_xticklabels(), *axes.get_yticklabels())]
    texts += [text for legend in figure.legends for text in legend.get_texts()]
    return [axes.get_title(loc="left") for axes in figure.axes] + [text.get_text() for text in texts]
