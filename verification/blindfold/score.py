"""How well the command that users type does on twins in disguise: every bug in the model, and pairs
without any.
"""

import argparse
import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass

import jax
import numpy as np
import torch

import parity
from parity.observe import weights
from parity.observe.settings import NotComparableError
from parity.report import Result
from verification.blindfold.disguise import disguise_flax, rename_torch
from verification.blindfold.truth import lines_of_bug
from verification.bugs.cases import CASES
from verification.bugs.scoreboard import choose_bugs
from verification.bugs.seeded_bug import SeededBug
from verification.twins import chunked
from verification.twins.random_architectures import draw_architecture
from verification.twins.twin_pair import TwinPair

# Stages that are no part of what a model computes in float64 from given weights.
_ELSEWHERE = ("optimizer", "loss", "init", "resume", "checkpoint", "dropout", "parameters")


@dataclass(frozen=True)
class Row:
    """How one bug fared.

    Args:
        caught: the pair is not called equal, or one side does not run.
        placed: a line of a fault is one at which the bug acts.
        causes: what is said of the faults; whether it names the bug is for a reader to judge.
    """

    id: str
    name: str
    caught: bool
    placed: bool
    causes: tuple[str, ...] = ()


def score_bug(bug: SeededBug, seed: int) -> Row:
    """Seed one bug and compare the disguised twins as a user would."""
    case = CASES[bug.case]
    pair = TwinPair(case.config, case.inputs, chunks=case.chunks)
    with bug.install():
        model = _torch_twin(pair)
        tensors = {name: torch.as_tensor(x) for name, x in pair.inputs.items()}
        try:
            lines = lines_of_bug(model, bug.at, tensors)
            result = compare_disguised(pair, model, [seed, *map(ord, bug.id)])
        except (NotComparableError, IndexError) as error:
            return Row(bug.id, bug.name, True, False, (str(error),))
    faults = result.to_dict()["faults"]
    places = {(place["file"], place["line"]) for fault in faults for place in fault["places"]}
    causes = tuple(fault["cause"] for fault in faults if fault["cause"])
    narrow = any(result.islands)
    return Row(bug.id, bug.name, not result.equal or narrow, bool(places & lines), causes)


def compare_disguised(pair: TwinPair, model: torch.nn.Module, seed: Sequence[int]) -> Result:
    """The verdict on a torch twin and the Flax one in disguise; torch's weights are copied."""
    rng = np.random.default_rng(seed)
    flax = chunked.flax_model(pair.config, pair.chunks)
    disguised, inputs = disguise_flax(flax, pair.params(), pair.inputs, rng)
    return parity.compare(
        rename_torch(model, rng),
        disguised,
        inputs=pair.inputs,
        jax_inputs=inputs,
        weights="torch",
        reference="jax",
    )


def _torch_twin(pair: TwinPair) -> torch.nn.Module:
    model = chunked.torch_model(pair.config, pair.chunks).double()
    weights.weights_to_torch(jax.tree.map(np.asarray, pair.params()), model)
    return model.eval()


def false_alarms(count: int, first: int = 0) -> Iterator[tuple[int, str]]:
    """(seed, what is wrongly said, or nothing) of so many correct pairs of random architectures."""
    for seed in range(first, first + count):
        drawn = draw_architecture(seed)
        pair = TwinPair(drawn.config, drawn.inputs, seed)
        try:
            result = compare_disguised(pair, _torch_twin(pair), [7, seed])
            yield seed, "" if result.equal else str(result).partition("\n")[0]
        except NotComparableError as error:
            yield seed, str(error)


def run_command(options: argparse.Namespace) -> int:
    """Print a line for every bug and the totals; 1 where one is missed or a pair accused."""
    chosen = [bug for bug in choose_bugs(options.ids) if not bug.at.startswith(_ELSEWHERE)]
    rows = []
    for bug in chosen:
        rows.append(score_bug(bug, options.seed))
        if not options.json:
            print(_line(rows[-1]), flush=True)
    accused = []
    for seed, said in false_alarms(options.false_alarms):
        accused += [seed] if said else []
        if said and not options.json:
            print(f"FALSE ALARM, seed {seed}: {said}", flush=True)
    found = {
        "caught": sum(row.caught for row in rows),
        "placed": sum(row.placed for row in rows),
        "explained": sum(bool(row.causes) for row in rows),
        "bugs": len(rows),
        "false_alarms": accused,
        "pairs": options.false_alarms,
    }
    if options.json:
        print(json.dumps(found | {"rows": [asdict(row) for row in rows]}, indent=1))
    else:
        print("", *_totals(found), sep="\n")
    return 0 if found["caught"] == len(rows) and not accused else 1


def _line(row: Row) -> str:
    marks = " ".join(
        word if is_so else "-" * len(word)
        for word, is_so in (("caught", row.caught), ("placed", row.placed))
    )
    return f"{row.id:<7} {marks}  {row.name}: {row.causes[0] if row.causes else 'unexplained'}"


def _totals(found: dict) -> list[str]:
    kinds = ("caught", "placed", "explained")
    lines = [f"{kind:<13}{found[kind]:>4} of {found['bugs']}" for kind in kinds]
    return [*lines, f"false alarms {len(found['false_alarms']):>4} of {found['pairs']}"]
