"""Names of arrays as words and numbers, and how alike two of them are.

Similar names are a hint between arrays that fit each other's shape, and never a must.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache

# Words of one meaning, the first standing for all.
_SYNONYMS = (
    "q query queries wq toq qlin theta",
    "k key keys wk tok klin phi",
    "v value values val wv tov vlin",
    "out output o wo toout outlin cproj proj projection",
    "attn attention mha multihead selfattention selfattn sa mhsa",
    "cross crossattention encdec crossattn encoderattn",
    "ffn mlp ff feedforward intermediate",
    "norm layernorm ln rmsnorm groupnorm gn bn batchnorm instancenorm normalization",
    "embed embedding embeddings emb word wte token tokens embedder",
    "pos position positions positional wpe",
    "head lm classifier logits decoderhead",
    "layer layers block blocks h resblocks transformerblock encoderlayer decoderlayer",
    "conv convolution conv1d conv2d conv3d",
    "down downsample",
)
_CANONICAL = {word: line.split()[0] for line in _SYNONYMS for word in line.split()}
_NOISE = (
    frozenset(("proj", "projection", "lin", "linear", "dense", "fc", "w", "c", "to"))
    | frozenset(("net", "module", "model", "params", "layer", "self", "transformer", "bert"))
    | frozenset(("weight", "kernel", "bias", "the", "dot", "product", "head", "multi"))
)
_AUTOMATIC = re.compile(r"[A-Z][A-Za-z0-9]*_\d+")
_CAMEL = re.compile(r"(?<=[a-z])(?=[A-Z])")


@dataclass(frozen=True)
class Words:
    """A name, read.

    Args:
        owner: the words of its last part.
        path: the words of the parts before.
        numbers: the numbers in it, each as its rank among those that stand at the same place.
        automatic: the library numbered the last part itself: it says nothing but the order.
    """

    owner: frozenset[str]
    path: frozenset[str]
    numbers: tuple[int, ...]
    automatic: bool


def read_names(names: Iterable[str]) -> dict[str, Words]:
    """The words of every name of one side."""
    split = {name: _parts(name) for name in names}
    # "layers.0", "layers.2": the numbers at one place are the first and the second.
    seen: dict[tuple[str, ...], set[int]] = defaultdict(set)
    for parts in split.values():
        for i, part in enumerate(parts):
            if part.isdigit():
                seen[parts[:i]].add(int(part))
    ranks = {place: {n: r for r, n in enumerate(sorted(found))} for place, found in seen.items()}
    read = {}
    for name, parts in split.items():
        last = name.replace(".", "/").rpartition("/")[2]
        automatic = bool(_AUTOMATIC.fullmatch(last))
        counted = parts[:-1] if automatic else parts
        numbers = tuple(ranks[parts[:i]][int(p)] for i, p in enumerate(counted) if p.isdigit())
        words = [part for part in parts if not part.isdigit()]
        owner = words[-1] if words else ""
        read[name] = Words(
            frozenset() if automatic else _meaning(owner),
            frozenset().union(*(_meaning(word) for word in words[:-1])),
            numbers,
            automatic,
        )
    return read


def similarity(ours: Words, theirs: Words) -> float:
    """From 0, nothing in common, to 1, the same words and numbers."""
    unnamed = ours.automatic or theirs.automatic
    owner = 0.5 if unnamed else _overlap(ours.owner, theirs.owner)
    path = _overlap(ours.path, theirs.path)
    whole = _overlap(ours.owner | ours.path, theirs.owner | theirs.path)
    words = 0.5 * owner + 0.2 * path + 0.3 * whole
    if ours.numbers == theirs.numbers:
        return 0.6 * words + 0.4
    shared = sum((Counter(ours.numbers) & Counter(theirs.numbers)).values())
    return 0.6 * words + 0.2 * shared / max(len(ours.numbers), len(theirs.numbers))


def rank_in_fused(name: str) -> int:
    """The place of a projection in a fused one: query, key, value; gate, up."""
    found = _meaning(_parts(name)[-1]) if _parts(name) else frozenset()
    order = ("q", "k", "v", "gate", "up")
    return next((i for i, word in enumerate(order) if word in found), len(order))


@cache
def _parts(name: str) -> tuple[str, ...]:
    """Parts of a path, a trailing number split off: "layers_0" and "layers.0" are the same."""
    parts = []
    for part in re.split(r"[/.]", name):
        if part in ("", "~"):
            continue
        found = re.fullmatch(r"(.*?)_?(\d+)", part)
        if found and not re.fullmatch(r"(.*_)?conv\dd?|.*[a-z]\d[dD]", part):
            parts += [found[1]] * bool(found[1]) + [found[2]]
        else:
            parts.append(part)
    return tuple(parts)


@cache
def _meaning(part: str) -> frozenset[str]:
    """The words of one part of a name, synonyms as one word, without those that say nothing."""
    words = [w.lower() for w in re.split(r"[_\-]+", _CAMEL.sub("_", part)) if w]
    whole = "".join(words)
    if whole in _CANONICAL:
        return frozenset({_CANONICAL[whole]})
    told = [_CANONICAL.get(word, word) for word in words if word not in _NOISE]
    return frozenset(told or (_CANONICAL.get(word, word) for word in words))


def _overlap(ours: frozenset[str], theirs: frozenset[str]) -> float:
    union = ours | theirs
    return len(ours & theirs) / len(union) if union else 1.0
