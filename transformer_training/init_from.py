"""`--init-from`: the model and weights of a checkpoint as the start of a new run."""

from dataclasses import fields

from transformer_hub.checkpoint import Checkpoint, open_checkpoint
from transformer_spec.config import ModelConfig
from transformer_spec.files import CheckpointError
from transformer_spec.parameters import parameter_shapes
from transformer_training.tasks.task import Task


def open_matching(path: str, task: Task) -> Checkpoint:
    """The checkpoint, whose parameters and vocabulary are those of the task.

    Raises:
        CheckpointError: it cannot be read, a size is not what the task or a flag asks for, or its
            ids stand for other characters than the task's.
    """
    checkpoint = open_checkpoint(path)
    if parameter_shapes(checkpoint.config) != parameter_shapes(task.model):
        wanted = _differences(checkpoint.config, task.model)
        raise CheckpointError(f"init_from: {path} does not fit the task and the flags: {wanted}")
    tokenizer = task.tokenizer and task.tokenizer.to_dict()
    if checkpoint.tokenizer not in (None, tokenizer):
        raise CheckpointError(
            f"init_from: {path} reads its ids as other characters than the task does; give the "
            "data it was trained on"
        )
    return checkpoint


def _differences(theirs: ModelConfig, ours: ModelConfig) -> str:
    pairs = [(f.name, getattr(theirs, f.name), getattr(ours, f.name)) for f in fields(ModelConfig)]
    return ", ".join(f"its {name} is {a}, not {b}" for name, a, b in pairs if a != b)
