"""Ranking texts by shared words."""

from __future__ import annotations

from lyra.kernel.shared.memories import TextIndex, words


def index_of(*texts: str) -> TextIndex:
    index = TextIndex()
    for number, text in enumerate(texts):
        index.add(number, text)
    return index


def order(index: TextIndex, question: str, most: int = 10) -> list[int]:
    return [number for number, _ in index.search(question, most)]


def test_words():
    """Case and plural do not matter; any script has words."""
    assert words("The Cats' größe, 茶 and glass") == ["the", "cat", "grösse", "茶", "and", "glass"]


def test_rare_words_weigh_more():
    """A word that few texts have says more than one that most have."""
    index = index_of("the tea is hot", "the coffee is hot", "the weather is hot", "green tea")
    assert order(index, "the tea")[0] in (0, 3)
    assert order(index, "the coffee")[0] == 1
    assert order(index, "rain") == []
    assert order(index, "hot", most=2) == [2, 1]


def test_what_is_removed_is_gone():
    """And the rest ranks as if it had never been there."""
    index, plain = index_of("tea with milk", "tea", "milk"), index_of("tea with milk")
    index.remove(1, "tea")
    index.remove(2, "milk")
    assert len(index) == 1
    assert index.search("tea milk", 5) == plain.search("tea milk", 5)
