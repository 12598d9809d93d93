"""Checkpoints in the formats of the Hugging Face hub: read into our parameters and written back.

    pretrained = from_pretrained("checkpoints/gpt2")  # a local directory: ModelConfig and arrays
    save_pretrained("exported/gpt2", pretrained)      # a directory that `transformers` opens

Nothing is downloaded, no code in a file is run, nothing is read from outside of the directory, and
every tensor is accounted for. On the command line: `python -m transformer_hub --help`.
"""

from transformer_hub.checkpoint import Checkpoint, open_checkpoint, open_pretrained
from transformer_hub.errors import CheckpointError
from transformer_hub.families import FAMILIES
from transformer_hub.pretrained import Pretrained, from_pretrained, save_pretrained

__all__ = [
    "FAMILIES",
    "Checkpoint",
    "CheckpointError",
    "Pretrained",
    "from_pretrained",
    "open_checkpoint",
    "open_pretrained",
    "save_pretrained",
]
