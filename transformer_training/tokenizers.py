"""Text to ids and back."""

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class CharacterTokenizer:
    """Each distinct character of a text, in code point order, is one token."""

    characters: str

    @classmethod
    def from_text(cls, text: str) -> "CharacterTokenizer":
        return cls("".join(sorted(set(text))))

    @property
    def vocab_size(self) -> int:
        return len(self.characters)

    def encode(self, text: str) -> np.ndarray:
        """Ids, int32.

        Raises:
            ValueError: a character is not in the vocabulary.
        """
        points = np.frombuffer(text.encode("utf-32-le"), np.uint32)
        known = np.frombuffer(self.characters.encode("utf-32-le"), np.uint32)
        ids = np.searchsorted(known, points).clip(max=len(known) - 1)
        unknown = points[known[ids] != points]
        if unknown.size:
            raise ValueError(f"text: {chr(unknown[0])!r} is not among the vocabulary's characters")
        return ids.astype(np.int32)

    def decode(self, ids: np.ndarray) -> str:
        return "".join(self.characters[i] for i in ids)

    def to_dict(self) -> dict[str, str]:
        """What config.json keeps: `CharacterTokenizer(characters)` reads the model's ids again."""
        return {"type": "characters", "characters": self.characters}
