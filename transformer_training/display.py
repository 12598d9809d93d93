"""What a run shows: a progress bar on a terminal, otherwise a line per record."""

from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.text import Text

FORMATS = {
    "loss": "loss {:.4f}",
    "accuracy": "accuracy {:.2%}",
    "lr": "lr {:.2e}",
    "grad_norm": "grad norm {:.3f}",
    "tokens_per_second": "{:,.0f} tokens/s",
    "eval_loss": "eval loss {:.4f}",
    "eval_accuracy": "eval accuracy {:.2%}",
    "eval_exact_match": "exact {:.2%}",
    "loss_difference": "twins differ: loss {:.1e}",
    "grad_norm_difference": "grad norm {:.1e}",
    "parameter_difference": "parameters {:.1e}",
}


def line(record: dict[str, Any]) -> str:
    """The figures of a record, in reading order."""
    return "  ".join(f.format(record[name]) for name, f in FORMATS.items() if name in record)


class Bar(Progress):
    """A progress bar under a line of figures: together they fit a terminal of 80 columns."""

    figures = ""

    def get_renderables(self):
        yield Text(self.figures)
        yield self.make_tasks_table(self.tasks)


class Display:
    """A context that shows the progress of `total` updates."""

    def __init__(self, total: int):
        self.console = Console(highlight=False, soft_wrap=True)
        self.interactive = self.console.is_terminal
        self.total = total
        columns = (
            BarColumn(),
            MofNCompleteColumn(),
            TimeRemainingColumn(),
            TextColumn("left"),
        )
        self.progress = Bar(*columns, console=self.console, disable=not self.interactive)
        self.progress.figures = "compiling the first step"
        self.bar = self.progress.add_task("", total=total)

    def __enter__(self) -> "Display":
        self.progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.progress.stop()

    def advance(self, update: int) -> None:
        self.progress.update(self.bar, completed=update)

    def show(self, record: dict[str, Any]) -> None:
        """Update the bar's figures; print a line after an evaluation, or where there is no bar."""
        figures = line({k: v for k, v in record.items() if not k.startswith("eval")})
        self.progress.figures = figures
        if not self.interactive or "eval_loss" in record:
            width = len(str(self.total))
            self.say(f"{record['step']:>{width}}/{self.total}  {line(record)}")
        if "sample" in record:
            self.say(f"    {record['sample']}")

    def say(self, text: str) -> None:
        self.console.print(text, markup=False)
