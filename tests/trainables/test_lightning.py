"""Lightning with the real library: epochs reported, interrupted and continued, alone and by two ranks."""

from __future__ import annotations

import importlib.util
import json
import logging
import sys
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

import trainables as train
import tuner as tune
from tests.trainables.killing import first_time
from trainables import session
from trainables.errors import InvalidSettingError
from trainables.lightning import (
    RayDDPStrategy,
    RayLightningEnvironment,
    RayTrainReportCallback,
    prepare_trainer,
)
from trainables.torch import TorchTrainer
from tuner.integration.pytorch_lightning import TuneCallback, TuneReportCallback, TuneReportCheckpointCallback

pytestmark = [
    pytest.mark.torch,
    # Of the library: data loaders without workers, no logger, a resume at the end of an epoch.
    pytest.mark.filterwarnings("ignore::UserWarning:lightning"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
]
X = torch.arange(96.0).reshape(32, 3).sin()
Y = X.sum(1, keepdim=True)


class Line(pl.LightningModule):  # type: ignore[misc]
    """A linear model that draws, with an optimizer and a scheduler that both have a state."""

    def __init__(self) -> None:
        super().__init__()
        self.line = torch.nn.Linear(3, 1)
        self.dropout = torch.nn.Dropout(0.2)
        torch.nn.init.constant_(self.line.weight, 0.1)
        torch.nn.init.constant_(self.line.bias, 0.0)

    def training_step(self, batch: Any, index: int) -> Any:
        loss = ((self.line(self.dropout(batch[0])) - batch[1]) ** 2).mean()
        self.log("loss", loss)
        return loss

    def validation_step(self, batch: Any, index: int) -> None:
        self.log("val_loss", ((self.line(batch[0]) - batch[1]) ** 2).mean())

    def configure_optimizers(self) -> Any:
        optimizer = torch.optim.Adam(self.parameters(), lr=0.1)
        return [optimizer], [torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.7)]


def data() -> Any:
    return DataLoader(TensorDataset(X, Y), batch_size=8, shuffle=True)


def trainer(*callbacks: Any, epochs: int = 5, **settings: Any) -> Any:
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    quiet = {"logger": False, "enable_progress_bar": False, "enable_model_summary": False, "accelerator": "cpu"}
    return pl.Trainer(max_epochs=epochs, callbacks=list(callbacks), **{**quiet, **settings})


def run(function: Any, path: Path, **settings: Any) -> Any:
    settings = {"executor": "inline", "verbose": 0, **settings}
    (trial,) = tune.run(function, storage_path=path, name="e", **settings).trials
    return trial


def rows(trial: Any) -> list[dict[str, Any]]:
    return [json.loads(line) for line in Path(trial.path, "result.json").read_text().splitlines()]


class Fails(pl.Callback):  # type: ignore[misc]
    """Ends the first attempt within the fourth epoch."""

    def __init__(self, place: Path) -> None:
        self.place = place

    def on_train_batch_start(self, trainer: Any, pl_module: Any, batch: Any, batch_idx: int) -> None:
        if trainer.current_epoch == 3 and batch_idx == 2 and first_time(self.place, "failed"):
            raise RuntimeError("lost")


@pytest.mark.parametrize(
    ("callback", "filename"),
    [
        (RayTrainReportCallback(), RayTrainReportCallback.CHECKPOINT_NAME),
        (TuneReportCheckpointCallback({"loss": "val_loss"}), "checkpoint"),
    ],
    ids=["train_epoch_end", "validation_end"],
)
def test_an_interrupted_trial_ends_with_the_model_of_one_that_was_not(
    callback: Any, filename: str, tmp_path: Path
) -> None:
    models = []

    def fit(config: dict[str, Any]) -> None:
        torch.manual_seed(3)
        model = Line()
        made = prepare_trainer(trainer(callback, Fails(tmp_path), default_root_dir=tmp_path / "lightning"))
        checkpoint = train.get_checkpoint()
        with checkpoint.as_directory() if checkpoint else nullcontext() as directory:
            made.fit(model, data(), data(), ckpt_path=directory and f"{directory}/{filename}")
        models.append(model)

    trial = run(fit, tmp_path, max_failures=1, keep_checkpoints_num=1)

    torch.manual_seed(3)
    straight, (model,) = Line(), models
    whole = trainer(enable_checkpointing=False)
    whole.fit(straight, data(), data())
    assert trial.num_failures == 1
    assert torch.equal(model.line.weight, straight.line.weight)
    assert torch.equal(model.line.bias, straight.line.bias)
    assert [row["training_iteration"] for row in rows(trial)] == [1, 2, 3, 4, 5]
    assert trial.last_result["loss"] == pytest.approx(
        whole.callback_metrics["val_loss" if filename == "checkpoint" else "loss"].item()
    )
    assert not (tmp_path / "lightning").exists()  # what is saved is what is reported
    with trial.checkpoint.as_directory() as directory:
        assert [file.name for file in Path(directory).iterdir() if not file.name.startswith(".")] == [filename]


def test_epoch_and_step_are_reported_and_one_that_only_reports_saves_nothing(tmp_path: Path) -> None:
    def fit(config: dict[str, Any]) -> None:
        callback = TuneReportCallback(["val_loss", "later"], on=["validation_end", "train_epoch_end"])
        trainer(callback, epochs=2, enable_checkpointing=False).fit(Line(), data(), data())
        train.report({"alone": True})
        trainer(RayTrainReportCallback(), epochs=1, enable_checkpointing=False).fit(Line(), data())

    trial = run(fit, tmp_path)

    assert ["val_loss" in row for row in rows(trial)] == [True] * 4 + [False] * 2
    assert (trial.last_result["epoch"], trial.last_result["step"]) == (0, 4)
    assert len(list(Path(trial.path).glob("checkpoint_*/.manifest.json"))) == 1


def test_a_hook_that_lightning_has_not_is_refused_with_the_nearest() -> None:
    with pytest.raises(InvalidSettingError, match="'validation_end'"):
        TuneReportCheckpointCallback(on="validation_ends")


def test_what_cannot_be_meant_is_refused() -> None:
    with pytest.raises(InvalidSettingError, match="metrics=3 is not accepted"):
        TuneReportCheckpointCallback(3)
    with pytest.raises(InvalidSettingError, match="accepted: a Trainer of Lightning"):
        prepare_trainer(Line())
    with pytest.raises(ImportError, match=r"RayFSDPStrategy is not here: .*RayDDPStrategy"):
        from trainables.lightning import RayFSDPStrategy  # noqa: F401


def test_a_callback_of_ones_own_is_called_at_its_hooks() -> None:
    seen = []

    class Own(TuneCallback):  # type: ignore[misc]
        def _handle(self, trainer: Any, pl_module: Any) -> None:
            seen.append((trainer.current_epoch, type(pl_module)))

    trainer(Own(on=["train_epoch_start"]), epochs=2, enable_checkpointing=False).fit(Line(), data())

    assert seen == [(0, Line), (1, Line)]


def test_it_serves_pytorch_lightning_where_that_is_what_is_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    import pytorch_lightning

    monkeypatch.delitem(sys.modules, "lightning.pytorch")
    spec = importlib.util.find_spec("trainables.lightning")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)

    assert issubclass(module.RayTrainReportCallback, pytorch_lightning.Callback)
    assert issubclass(module.RayDDPStrategy, pytorch_lightning.strategies.DDPStrategy)


def test_a_model_checkpoint_with_a_place_of_its_own_stays(tmp_path: Path) -> None:
    own = pl.callbacks.ModelCheckpoint(dirpath=tmp_path)

    assert own in prepare_trainer(trainer(own)).callbacks
    assert not prepare_trainer(trainer()).checkpoint_callbacks


def fitted(*callbacks: Any, epochs: int, path: str | None = None) -> Any:
    """A model that the ranks of a group train."""
    pl.seed_everything(session.get_world_rank(), verbose=False)
    group = {"strategy": RayDDPStrategy(), "plugins": [RayLightningEnvironment()], "devices": 1}
    made, model = trainer(*callbacks, epochs=epochs, **group), Line()
    prepare_trainer(made).fit(model, data(), ckpt_path=path)
    return model.line.weight.detach().clone()


def in_a_group(config: dict[str, Any]) -> None:
    alone = trainer(enable_checkpointing=False, devices=1)
    with pytest.raises(InvalidSettingError, match="RayDDPStrategy"):
        prepare_trainer(alone)
    straight = fitted(epochs=2)
    fitted(RayTrainReportCallback(), epochs=1)
    checkpoint = train.get_checkpoint()
    assert checkpoint is not None
    with checkpoint.as_directory() as directory:
        path = f"{directory}/{RayTrainReportCallback.CHECKPOINT_NAME}"
        continued = fitted(RayTrainReportCallback(), epochs=2, path=path)
    assert torch.equal(continued, straight)
    weights: list[Any] = [None] * 2
    torch.distributed.all_gather_object(weights, (session.get_world_rank(), continued))
    assert [rank for rank, _ in weights] == [0, 1]
    assert torch.equal(weights[0][1], weights[1][1])


def test_two_ranks_train_one_model_rank_0_saves_it_and_each_goes_on_as_it_was(tmp_path: Path) -> None:
    result = TorchTrainer(
        in_a_group,
        train_loop_config={},
        scaling_config=train.ScalingConfig(num_workers=2, resources_per_worker={"CPU": 0.5}),
        run_config=train.RunConfig(storage_path=str(tmp_path), name="e", verbose=0),
    ).fit()

    assert result.error is None
    assert (result.metrics["epoch"], result.metrics["step"]) == (1, 4)  # 32 samples, 2 ranks, batches of 8
    with result.checkpoint.as_directory() as directory:
        assert Path(directory, RayTrainReportCallback.CHECKPOINT_NAME).exists()
