"""scikit-learn: checkpoints of estimators, and trials of estimators that learn batch by batch (`partial_fit`)."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Any, ClassVar

from trainables.checkpoint import Checkpoint
from trainables.errors import CheckpointNotFoundError, InvalidSettingError
from trainables.store import fs
from trainables.trainable import Trainable
from trainables.validation import invalid, nearest_name, whole_number

__all__ = ["PartialFitTrainable", "SklearnCheckpoint"]

PROGRESS_FILE = "progress.json"


class SklearnCheckpoint(Checkpoint):
    """A checkpoint of an estimator. It is a pickle: load only what comes from where you trust.

    Example:
        >>> checkpoint = SklearnCheckpoint.from_estimator(SGDClassifier(), path=directory)
        >>> checkpoint.get_estimator()
        SGDClassifier()
    """

    MODEL_FILENAME: ClassVar[str] = "model.pkl"

    @classmethod
    def from_estimator(
        cls, estimator: Any, *, path: str | Path | None = None, preprocessor: None = None
    ) -> SklearnCheckpoint:
        """A checkpoint of an estimator, written into the directory `path`; without it, when it is reported.

        Without `path` the estimator is not copied before it is reported.
        """
        if path is None:
            made = cls._in_memory()
            assert isinstance(made, SklearnCheckpoint)
            made._estimator = estimator
            return made
        write_estimator(estimator, Path(path))
        return cls(path)

    @classmethod
    def of(cls, checkpoint: Checkpoint) -> SklearnCheckpoint:
        """A reported checkpoint, with `get_estimator`: `SklearnCheckpoint.of(result.checkpoint).get_estimator()`."""
        return cls(checkpoint.path)

    def get_estimator(self) -> Any:
        """The estimator: this unpickles. Raises CheckpointNotFoundError when there is none in it."""
        if self._estimator is not None:
            return self._estimator
        with self.as_directory() as directory:
            return read_estimator(Path(directory))

    _estimator: Any = None

    def _materialize(self, directory: Path) -> None:
        super()._materialize(directory) if self._estimator is None else write_estimator(self._estimator, directory)


class PartialFitTrainable(Trainable):
    """A class trainable of an estimator with `partial_fit`, its batches and a scorer; `of` makes one.

    A step is one pass over the batches, or `batches_per_step` of them; its result is the score, `batches` (seen so
    far) and `epoch` (complete passes). A checkpoint holds the estimator and the place among the batches, so that a
    trial that was killed continues with the next batch and ends with the same estimator as one that was not.

    Example:
        >>> Digits = PartialFitTrainable.of(
        ...     SGDClassifier(random_state=0), batches, "accuracy", validation=(x, y), classes=range(10)
        ... )
        >>> tune.run(Digits, config={"alpha": tune.loguniform(1e-6, 1e-2)}, stop={"epoch": 20}, checkpoint_freq=1)
    """

    _estimator: Any = None
    _batches: Any = None
    _scorer: Any = None
    _validation: tuple[Any, Any] | None = None
    _classes: Any = None
    _batches_per_step: int | None = None

    @classmethod
    def of(
        cls,
        estimator: Any,
        batches: Iterable[tuple[Any, Any]] | Callable[[dict[str, Any], int], Iterable[tuple[Any, Any]]],
        scorer: str | Callable[..., float | Mapping[str, Any]],
        *,
        validation: tuple[Any, Any] | None = None,
        classes: Iterable[Any] | None = None,
        batches_per_step: int | None = None,
    ) -> type[PartialFitTrainable]:
        """A trainable class.

        Args:
            estimator: One whose clone takes the config as its parameters; a class, called with the config as named
                arguments; or a function of the config.
            batches: The pairs (X, y) of one pass, something that can be gone through again; or a function of config
                and epoch (from 0) that returns them, which has to return the same for the same epoch.
            scorer: Called with the estimator, and X and y of `validation` where there is one. Returns a number, which
                is then called `score`, or a dict of metrics. Or the name of one of scikit-learn's, which needs
                `validation`.
            validation: X and y to score on.
            classes: All labels, for classifiers: a batch need not have each.
            batches_per_step: Batches of one step; default: a whole pass.

        Raises InvalidSettingError for what cannot be trained so.
        """
        if not callable(estimator) and not hasattr(estimator, "partial_fit"):
            raise invalid("PartialFitTrainable: estimator", estimator, "an estimator with partial_fit")
        if isinstance(batches, Iterator) or not (callable(batches) or isinstance(batches, Iterable)):
            raise invalid("PartialFitTrainable: batches", batches, "a list, or a function of config and epoch")
        if batches_per_step is not None:
            batches_per_step = whole_number("PartialFitTrainable: batches_per_step", batches_per_step, least=1)
        if isinstance(scorer, str):
            _check_scorer(scorer, validation)
        elif not callable(scorer):
            raise invalid("PartialFitTrainable: scorer", scorer, "a function, or the name of one of scikit-learn's")
        name = getattr(estimator, "__name__", type(estimator).__name__)
        made = {
            "_estimator": staticmethod(estimator) if callable(estimator) else estimator,
            "_batches": staticmethod(batches) if callable(batches) else batches,
            "_scorer": staticmethod(scorer) if callable(scorer) else scorer,
            "_validation": validation,
            "_classes": None if classes is None else list(classes),
            "_batches_per_step": batches_per_step,
        }
        return type(name, (cls,), made)

    def setup(self, config: dict[str, Any]) -> None:
        """Make the estimator of this config."""
        if self._estimator is None:
            raise InvalidSettingError("PartialFitTrainable has no estimator: PartialFitTrainable.of(...) makes a class")
        self.estimator = _made_for(self._estimator, config)
        self._seen = self._epoch = self._of_epoch = 0
        self._left: Iterator[tuple[Any, Any]] | None = None

    def step(self) -> dict[str, Any]:
        """Learn from the next batches, and score."""
        wanted = self._batches_per_step
        learnt = self._learn(wanted)
        while wanted is not None and learnt < wanted:  # the pass ended within this step
            learnt += self._learn(wanted - learnt)
        score = self._score()
        named = dict(score) if isinstance(score, Mapping) else {"score": score}
        return {**named, "batches": self._seen, "epoch": self._epoch}

    def _learn(self, most: int | None) -> int:
        """Up to `most` batches of this pass, which ends when there are no more; the number."""
        if self._left is None:
            self._left = islice(iter(self._of_pass()), self._of_epoch, None)
        learnt = 0
        for x, y in islice(self._left, most):
            first = {} if self._classes is None or self._seen else {"classes": self._classes}
            self.estimator.partial_fit(x, y, **first)
            self._seen += 1
            learnt += 1
        self._of_epoch += learnt
        if most is None or learnt < most:
            if not self._of_epoch:
                raise InvalidSettingError(f"there is no batch in epoch {self._epoch} of {type(self).__name__}")
            self._epoch, self._of_epoch, self._left = self._epoch + 1, 0, None
        return learnt

    def _of_pass(self) -> Iterable[tuple[Any, Any]]:
        found: Iterable[tuple[Any, Any]] = (
            self._batches(self.config, self._epoch) if callable(self._batches) else self._batches
        )
        return found

    def _score(self) -> float | Mapping[str, Any]:
        scorer = self._scorer
        if isinstance(scorer, str):
            from sklearn.metrics import get_scorer

            scorer = get_scorer(scorer)
        score: float | Mapping[str, Any] = scorer(self.estimator, *(self._validation or ()))
        return score

    def save_checkpoint(self, checkpoint_dir: str) -> None:
        """The estimator as `SklearnCheckpoint` reads it, and where it is among the batches."""
        write_estimator(self.estimator, Path(checkpoint_dir))
        place = {"seen": self._seen, "epoch": self._epoch, "of_epoch": self._of_epoch}
        fs.write_file(Path(checkpoint_dir) / PROGRESS_FILE, json.dumps(place).encode(), fsync=False)

    def load_checkpoint(self, checkpoint: str) -> None:
        """Continue with the estimator, at the batch after the last that it learnt from."""
        self.estimator = read_estimator(Path(checkpoint))
        place = json.loads(fs.read_file(Path(checkpoint) / PROGRESS_FILE))
        self._seen, self._epoch, self._of_epoch = place["seen"], place["epoch"], place["of_epoch"]
        self._left = None


def _check_scorer(name: str, validation: Any) -> None:
    from sklearn.metrics import get_scorer_names

    if name not in (known := get_scorer_names()):
        near = nearest_name(name, known)
        raise invalid("PartialFitTrainable: scorer", name, f"{near!r}" if near else ", ".join(known))
    if validation is None:
        raise InvalidSettingError(f"scorer={name!r} needs validation=(X, y) to score on")


def _made_for(estimator: Any, config: dict[str, Any]) -> Any:
    if isinstance(estimator, type):
        made = estimator(**config)
    elif hasattr(estimator, "partial_fit"):
        from sklearn.base import clone

        made = clone(estimator).set_params(**config)
    else:
        made = estimator(config)
    if not hasattr(made, "partial_fit"):
        raise invalid("PartialFitTrainable: estimator", made, "an estimator with partial_fit")
    return made


def write_estimator(estimator: Any, directory: Path) -> None:
    """Pickle an estimator into a directory, which is made when absent."""
    import cloudpickle

    fs.make_dirs(directory)
    content = cloudpickle.dumps(estimator, protocol=pickle.HIGHEST_PROTOCOL)
    fs.write_file(directory / SklearnCheckpoint.MODEL_FILENAME, content, fsync=False)


def read_estimator(directory: Path) -> Any:
    """The estimator in a directory. Raises CheckpointNotFoundError when there is none."""
    try:
        content = fs.read_file(directory / SklearnCheckpoint.MODEL_FILENAME)
    except FileNotFoundError as error:
        raise CheckpointNotFoundError(f"{directory} holds no {SklearnCheckpoint.MODEL_FILENAME}") from error
    return pickle.loads(content)
