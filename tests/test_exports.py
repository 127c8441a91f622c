"""The public names: sorted, all there, and importing them is light."""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys

import pytest

HEAVY = {
    "numpy",
    "pandas",
    "optuna",
    "torch",
    "tensorboardX",
    "rich",
    "pydantic",
    "yaml",
    "boto3",
    "fsspec",
    "kaleido",
    "plotly",
    "sqlalchemy",
    "accelerate",
    "keras",
    "lightgbm",
    "lightning",
    "pytorch_lightning",
    "sklearn",
    "transformers",
    "xgboost",
}

SURFACE = """
    BasicVariantGenerator CLIReporter Callback Checkpoint CheckpointConfig CombinedStopper Command Experiment
    ExperimentAnalysis FailureConfig FunctionStopper JupyterNotebookReporter PlacementGroupFactory ProgressReporter
    ResultGrid ResumeConfig RunConfig Stopper SyncConfig Trainable TuneConfig TuneContext TuneError Tuner
    checkpoint_dir choice create_scheduler create_searcher get_checkpoint get_context get_trial_dir get_trial_id
    get_trial_name get_trial_resources grid_search lograndint loguniform qlograndint qloguniform qrandint qrandn
    quniform randint randn register_env register_trainable report run run_experiments sample_from syncConfig uniform
    with_parameters with_resources wrap_function
""".split()

# Ray's module path -> a name that has to be found under it here.
MODULES = {
    "tuner.schedulers": ["ASHAScheduler", "AsyncHyperBandScheduler", "FIFOScheduler", "TrialScheduler"],
    "tuner.schedulers.pb2": ["PB2"],
    "tuner.schedulers.pbt": ["PopulationBasedTraining", "PopulationBasedTrainingReplay"],
    "tuner.schedulers.resource_changing_scheduler": [
        "DistributeResources",
        "DistributeResourcesToTopJob",
        "ResourceChangingScheduler",
    ],
    "tuner.search": ["BasicVariantGenerator", "ConcurrencyLimiter", "Searcher"],
    "tuner.search.optuna": ["OptunaSearch"],
    "tuner.stopper": [
        "CombinedStopper",
        "ExperimentPlateauStopper",
        "FunctionStopper",
        "MaximumIterationStopper",
        "NoopStopper",
        "Stopper",
        "TimeoutStopper",
        "TrialPlateauStopper",
    ],
    "tuner.logger": [
        "CSVLoggerCallback",
        "JsonLoggerCallback",
        "LegacyLoggerCallback",
        "Logger",
        "LoggerCallback",
        "TBXLoggerCallback",
    ],
    "tuner.experiment": ["Trial"],
    "tuner.result": ["DONE", "SHOULD_CHECKPOINT", "TIME_TOTAL_S", "TRAINING_ITERATION"],
    "tuner.error": ["TuneError"],
    "tuner.registry": ["register_env", "register_trainable"],
    "tuner.progress_reporter": ["CLIReporter", "JupyterNotebookReporter", "ProgressReporter"],
    "tuner.integration.keras": ["TuneReportCallback", "TuneReportCheckpointCallback"],
    "tuner.integration.lightgbm": ["TuneReportCallback", "TuneReportCheckpointCallback"],
    "tuner.integration.pytorch_lightning": ["TuneCallback", "TuneReportCallback", "TuneReportCheckpointCallback"],
    "tuner.integration.xgboost": ["TuneReportCallback", "TuneReportCheckpointCallback"],
    "tuner.executors": ["InlineExecutor", "LocalExecutor", "SimulatedExecutor"],
    "trainables": ["Checkpoint", "CheckpointConfig", "RunConfig", "Trainer", "get_checkpoint", "get_context", "report"],
    "trainables.huggingface.transformers": ["RayTrainReportCallback", "prepare_trainer"],
    "trainables.keras": ["ReportCheckpointCallback"],
    "trainables.lightgbm": ["RayTrainReportCallback"],
    "trainables.lightning": [
        "RayDDPStrategy",
        "RayLightningEnvironment",
        "RayTrainReportCallback",
        "prepare_trainer",
    ],
    "trainables.sklearn": ["PartialFitTrainable", "SklearnCheckpoint"],
    "trainables.xgboost": ["RayTrainReportCallback"],
    "trainables.data_parallel_trainer": ["DataParallelTrainer"],
    "trainables.session": ["get_checkpoint", "report"],
    "trainables.trainer": ["BaseTrainer"],
    "trainables.torch": [
        "AdvancedTooFarError",
        "AtomicDirectory",
        "DistributedShardedDataset",
        "HasNotResetProgressError",
        "InterruptableDistributedGroupedBatchSampler",
        "InterruptableDistributedSampler",
        "InterruptableSampler",
        "InterruptibleSampler",
        "MetricsTracker",
        "TimestampedTimer",
        "TorchCheckpoint",
        "TorchConfig",
        "TorchTrainer",
        "TrainState",
        "accelerate",
        "atomic_torch_save",
        "backward",
        "enable_reproducibility",
        "get_device",
        "get_devices",
        "prepare_data_loader",
        "prepare_model",
        "prepare_optimizer",
    ],
}


@pytest.mark.parametrize("module", sorted(MODULES))
def test_a_module_has_the_names_that_users_expect(module: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KERAS_BACKEND", "torch")
    monkeypatch.setenv("KERAS_HOME", os.devnull)  # it would write its settings there
    found = importlib.import_module(module)

    missing = [name for name in MODULES[module] if not hasattr(found, name)]

    assert not missing


@pytest.mark.parametrize("package", ["tuner", "trainables", "trainables.torch"])
def test_every_exported_name_is_there_and_the_list_is_sorted(package: str) -> None:
    found = importlib.import_module(package)

    assert list(found.__all__) == sorted(found.__all__)
    assert not [name for name in found.__all__ if not hasattr(found, name)]


def test_the_surface_of_ray_tune_is_exported() -> None:
    import tuner

    assert not [name for name in SURFACE if name not in tuner.__all__]


def loaded_by(statement: str) -> set[str]:
    """Top-level modules that a fresh interpreter has after a statement."""
    code = f"{statement}; import json, sys; print(json.dumps(sorted({{m.split('.')[0] for m in sys.modules}})))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(json.loads(done.stdout.splitlines()[-1]))


@pytest.mark.parametrize(
    "statement",
    [
        "import tuner",
        "import trainables",
        "import tuner as tune; tune.run, tune.Tuner, tune.Callback, tune.uniform, tune.report",
        "import tuner.cli",
        "import trainables.runtime.worker, trainables.group.leader",
        "import tuner.integration, trainables.huggingface, trainables.reporting",
        "import trainables.torch as torch; torch.AtomicDirectory, torch.AdvancedTooFarError",
    ],
)
def test_importing_loads_nothing_heavy(statement: str) -> None:
    assert not loaded_by(statement) & HEAVY


def test_a_worker_does_not_load_the_driver() -> None:
    assert "tuner" not in loaded_by("import trainables, trainables.session, trainables.checkpoint")


def test_importing_the_module_of_run_does_not_hide_the_function() -> None:
    code = "import tuner.run, tuner.cli.config_file, tuner; assert callable(tuner.run), tuner.run"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)

    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("code", "meant"),
    [("import tuner as tune; tune.unifrom", "uniform"), ("import trainables; trainables.repport", "report")],
)
def test_a_mistyped_name_is_told_the_nearest(code: str, meant: str) -> None:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stderr.splitlines()[-1].endswith(f"Did you mean: '{meant}'?")


def test_from_tuner_import_tune_is_the_package_also_after_its_module_was_asked_for() -> None:
    code = (
        "from tuner import tune; import tuner, tuner.tune; from tuner import tune as again\n"
        "assert tune is again is tuner and tune.Tuner is tuner.Tuner and tune.schedulers.ASHAScheduler"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)

    assert done.returncode == 0, done.stderr
