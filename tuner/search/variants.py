"""`BasicVariantGenerator`: grid and random search; and the tags of trials."""

from __future__ import annotations

import bisect
import itertools
import logging
import operator
import random
import re
from collections.abc import Mapping, Sequence
from typing import Any

from trainables.validation import checked_names
from tuner.error import SettingError, require
from tuner.search.arguments import whole_number
from tuner.search.domain_samplers import as_draw
from tuner.search.domains import describe
from tuner.search.experiment_spec import ExperimentSpec
from tuner.search.fitting import misfit
from tuner.search.planned_trial import PlannedTrial
from tuner.search.resolve import HashDraw, Space
from tuner.search.sample import choice
from tuner.search.search_algorithm import SearchAlgorithm
from tuner.search.searcher import Metric, Searcher, Suggestion
from tuner.search.space import evaluated_params
from tuner.search.space_tree import Computed, compile_node, is_grid

log = logging.getLogger(__name__)

LARGE = 10_000
"""A grid that makes more trials than that is spoken of."""
_TAG = 100
_VALUE = 24


@checked_names
class BasicVariantGenerator(Searcher, SearchAlgorithm):
    """Grid and random search: what is used when no other searcher is given.

    Every combination of all grids, `num_samples` times; the grids run inside, the samples outside. The config of
    trial i is a pure function of (seed, i): the number of workers and a resume do not change it.

    Args:
        points_to_evaluate: configs, whole or in part, that come first; each takes the place of one sample.
        max_concurrent: at most so many unfinished trials; 0: no limit.
        constant_grid_search: draw the random values once per sample, and not once per combination of the grids.
        random_state: a seed or a generator that one is drawn from; None: the experiment's.

    Example:
        >>> searcher = BasicVariantGenerator(random_state=7)
        >>> searcher.set_search_properties(None, None, {"a": {"grid_search": [1, 2]}}, num_samples=2)
        True
        >>> [searcher.suggest(str(i)) for i in range(5)]
        [{'a': 1}, {'a': 2}, {'a': 1}, {'a': 2}, 'FINISHED']
    """

    CKPT_FILE_TMPL = "basic-variant-state-{}.json"
    counts_samples = True
    _remembered = ("_index", "_live", "_seed")

    def __init__(
        self,
        points_to_evaluate: Sequence[Mapping[str, Any]] | None = None,
        max_concurrent: int = 0,
        constant_grid_search: bool = False,
        random_state: Any = None,
    ) -> None:
        super().__init__()
        self._points = list_of_points(points_to_evaluate)
        self.max_concurrent = whole_number("max_concurrent", max_concurrent, least=0)
        self.constant_grid_search = bool(constant_grid_search)
        self._given_seed = self._seed = as_seed(random_state)
        self._index = 0
        self._live: set[str] = set()
        self._num_samples = 1
        self._named = ""
        self._space: Space | None = None
        self._presets: list[Space] = []
        self._preset_ends: list[int] = []

    def set_search_properties(self, metric: Metric, mode: Metric, config: Mapping[str, Any], **spec: Any) -> bool:
        if not isinstance(config, Mapping):
            raise SettingError(
                f"grid and random search need a dict as search space, not {describe(config)}; "
                "OptunaSearch takes functions"
            )
        self._space = Space(config)
        self._presets = [Space(preset_space(config, point)) for point in self._points]
        self._preset_ends = list(itertools.accumulate(preset.grid_size for preset in self._presets))
        self._num_samples = int(spec.get("num_samples", 1))
        if self._given_seed is None:
            self._seed = as_seed(spec.get("seed"))
        return True

    @property
    def total(self) -> int | None:  # type: ignore[override]
        """How many configs there will be, grids counted out; None: without end."""
        if self._num_samples < 0:
            return None
        presets = self._preset_ends[-1] if self._preset_ends else 0
        return presets + max(0, self._num_samples - len(self._presets)) * self._searched().grid_size

    @property
    def total_samples(self) -> int:
        return self.total or 0

    def add_configurations(self, experiments: Any) -> None:
        """By hand: take the experiment of which `next_trial` makes the trials."""
        made = ExperimentSpec.several(experiments)
        if len(made) != 1:
            raise SettingError(f"BasicVariantGenerator makes the trials of one experiment, not of {len(made)}")
        self._named, spec = made[0].run_identifier, made[0].spec
        self.set_search_properties(None, None, spec["config"], num_samples=spec["num_samples"])

    def next_trial(self) -> PlannedTrial | None:
        """By hand: the next trial, or None: there is none, or none now."""
        trial_id = f"{self._index:05d}"
        config = self.suggest(trial_id)
        if not isinstance(config, dict):
            return None
        evaluated = evaluated_params(self._searched().config, config)
        return PlannedTrial(self._named, config, trial_id, evaluated, format_tag(self._index - 1, evaluated))

    def is_finished(self) -> bool:
        total = self.total
        return self._finished or (total is not None and self._index >= total)

    def set_max_concurrency(self, max_concurrent: int) -> bool:
        self.max_concurrent = max_concurrent
        return True

    def set_num_samples(self, num_samples: int) -> bool:
        self._num_samples = num_samples
        return True

    def config(self, index: int) -> dict[str, Any]:
        """The config of trial `index`, from 0."""
        presets = self._preset_ends[-1] if self._preset_ends else 0
        if index < presets:
            sample = bisect.bisect_right(self._preset_ends, index)
            grid_index = index - (self._preset_ends[sample - 1] if sample else 0)
            space = self._presets[sample]
        else:
            space = self._searched()
            sample, grid_index = divmod(index - presets, space.grid_size)
            sample += len(self._presets)
        unit = f"sample {sample}" if self.constant_grid_search else f"trial {index}"
        return space.resolve(HashDraw(f"{self._drawn_seed()} {unit}"), grid_index)

    def suggest(self, trial_id: str) -> Suggestion:
        total = self.total
        if total is not None and self._index >= total:
            return Searcher.FINISHED
        if 0 < self.max_concurrent <= len(self._live):
            return None
        if not self._index:
            self._say_if_large(total)
        config = self.config(self._index)
        self._index += 1
        self._live.add(trial_id)
        return config

    def replay_suggest(self, trial_id: str, config: dict[str, Any]) -> bool:
        self._index += 1  # a pure function of the index: nothing else is to be remembered
        self._live.add(trial_id)
        return True

    def on_trial_complete(self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False) -> None:
        self._live.discard(trial_id)

    def _say_if_large(self, total: int | None) -> None:
        """A grid multiplies: who has added a value to each of its lists may not know how many trials that makes."""
        size = self._searched().grid_size
        if size == 1 or max(size, total or 0) <= LARGE:
            return
        samples = (
            "num_samples=-1, without end" if total is None else f"num_samples={self._num_samples}, {total:,} trials"
        )
        log.warning(
            "the grid is large: %s combinations and %s; tune.choice([...]) instead of tune.grid_search([...]) draws "
            "from the same values as many trials as num_samples says",
            f"{size:,}",
            samples,
        )

    def get_state(self) -> dict[str, Any]:
        self._drawn_seed()
        return super().get_state()

    def _drawn_seed(self) -> int:
        if self._seed is None:
            self._seed = random.SystemRandom().getrandbits(53)
        return self._seed

    def _searched(self) -> Space:
        if self._space is None:
            raise SettingError("BasicVariantGenerator has no search space yet: set_search_properties gives it one")
        return self._space


def list_of_points(points: Any) -> list[Mapping[str, Any]]:
    """`points_to_evaluate=` as a list. Raises SettingError for what is no list of dicts."""
    listed = [] if points is None else points
    fits = isinstance(listed, Sequence) and all(isinstance(point, Mapping) for point in listed)
    require(fits, "points_to_evaluate", points, "it is a list of dicts")
    return list(listed)


def as_seed(random_state: Any) -> int | None:
    if random_state is None:
        return None
    try:
        return operator.index(random_state)
    except TypeError:
        return int(as_draw(random_state)() * 2**53)


def preset_space(space: Mapping[str, Any], point: Mapping[str, Any], path: str = "") -> dict[str, Any]:
    """A space with the values of a point in the place of its domains.

    Raises SettingError for a key or a value that the space has not.
    """
    made = dict(space)
    for key, value in point.items():
        place = f"{path}{key}"
        if key not in space:
            raise SettingError(
                f"points_to_evaluate: {place!r} is not in the search space, which has: {', '.join(map(str, space))}"
            )
        domain = space[key]
        if isinstance(domain, Mapping) and not is_grid(domain) and isinstance(value, Mapping):
            made[key] = preset_space(domain, value, f"{place}/")
            continue
        node = compile_node(choice(domain["grid_search"]) if is_grid(domain) else domain)
        if problem := misfit(node, value, place, fixed=not isinstance(node, Computed)):
            raise SettingError(f"points_to_evaluate: {problem}")
        made[key] = value
    return made


def format_tag(index: int, evaluated_params: Mapping[str, Any]) -> str:
    """What a trial is told apart by at a glance: "3_layers=2,lr=0.1000"; at most 100 characters.

    Of a searched value "model/lr" the tag has "lr".
    """
    parts = []
    room = _TAG - len(str(index)) - 1
    for key, value in sorted(evaluated_params.items()):
        part = f"{_clean(_short(key))}={_clean(value)}"
        room -= len(part) + 1
        if room < 0:
            break
        parts.append(part)
    return f"{index}_{','.join(parts)}" if parts else str(index)


def _short(key: str) -> str:
    """The last name of a path, with the number behind it in a list."""
    *way, last = key.split("/")
    return f"{way[-1]}_{last}" if way and last.isdigit() else last


def _clean(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.4f}" if value == 0 or 0.001 <= abs(value) < 1e6 else f"{value:.4g}"
    text = str(value) if isinstance(value, (str, int)) else describe(value)
    return re.sub(r"[^a-zA-Z0-9_-]+", "_", text).strip("_")[:_VALUE]
