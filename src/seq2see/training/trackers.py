"""Writes the table of a training to a tracker of other people: TensorBoard, Weights & Biases or MLflow."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from importlib import import_module
from typing import TYPE_CHECKING, Any

from seq2see.errors import UserError, installed, suggest

if TYPE_CHECKING:
    from seq2see.training.loop import Line, Trainer

PROJECT = "seq2see-trainings"
FIGURES = ("loss", "validation_loss", "exact_match", "bleu", "learning_rate")
PACKAGES = {"tensorboard": "tensorboard", "wandb": "wandb", "mlflow": "mlflow"}


def known(name: str) -> str:
    """Return the name of a tracker whose package is installed."""
    if name not in PACKAGES:
        raise UserError(f"There is no tracker {name!r}. {suggest(name, PACKAGES)}")
    installed(PACKAGES[name], f"--log {name}")
    return name


@contextmanager
def tracked(name: str, trainer: Trainer) -> Iterator[Callable[[Line], None]]:
    """Return a function that sends a line of the table to a tracker; the settings are sent at once."""
    assert trainer.out is not None
    config = {
        f"{section}.{key}": value
        for section in ("model", "training", "decoding")
        for key, value in asdict(getattr(trainer.config, section)).items()
    }
    send, close = {"tensorboard": _tensorboard, "wandb": _wandb, "mlflow": _mlflow}[name](trainer, config)

    def line(line: Line) -> None:
        send({figure: value for figure in FIGURES if (value := getattr(line, figure)) is not None}, line.step)

    try:
        yield line
    finally:
        close()


Sender = tuple[Callable[[dict[str, float], int], None], Callable[[], object]]


def _tensorboard(trainer: Trainer, config: dict[str, Any]) -> Sender:
    writer = import_module("torch.utils.tensorboard").SummaryWriter(str(trainer.out / "tensorboard"))  # type: ignore[operator]

    def send(figures: dict[str, float], step: int) -> None:
        for figure, value in figures.items():
            writer.add_scalar(figure, value, step)
        writer.flush()  # it is seen while the training goes on

    writer.add_text("settings", "\n".join(f"    {key} = {value}" for key, value in config.items()))
    return send, writer.close


def _wandb(trainer: Trainer, config: dict[str, Any]) -> Sender:
    assert trainer.out is not None
    run = import_module("wandb").init(project=PROJECT, name=trainer.out.name, dir=str(trainer.out), config=config)
    return lambda figures, step: run.log(figures, step=step), run.finish


def _mlflow(trainer: Trainer, config: dict[str, Any]) -> Sender:
    assert trainer.out is not None
    mlflow = import_module("mlflow")
    mlflow.set_experiment(PROJECT)
    mlflow.start_run(run_name=trainer.out.name)
    mlflow.log_params({key: value for key, value in config.items() if value is not None})
    return lambda figures, step: mlflow.log_metrics(figures, step=step), mlflow.end_run
