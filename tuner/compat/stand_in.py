"""`ray`, where no Ray is: a hook that maps `ray.tune` onto `tuner`, `ray.train` and `ray.air` onto `trainables`.

Module for module, by their paths and by the table of Ray's names; the modules are the very same objects, so that what a
trial's process gets by name is found there too.

`ray.init(address=...)` connects to that cluster, and trials run there. From then on the stand-in is Ray: Ray's own code
is loaded into the very same module, with our tune, train and air in it.
"""

from __future__ import annotations

import importlib
import importlib.util
import pkgutil
import sys
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

from trainables import aliases
from trainables.validation import nearest_name
from tuner import knobs
from tuner.compat import examples, table, utilities
from tuner.error import SettingError
from tuner.executors import LocalExecutor, RayExecutor, default
from tuner.executors.local.pickled import FIRST
from tuner.executors.ray import connection
from tuner.experiment import existing
from tuner.experiment.existing import Existing


def install() -> None:
    """Map Ray's names from now on, in this process and in the trials that it starts. Doing it twice is no error.

    Raises SettingError if a Ray is imported already: it is not shadowed.
    """
    there = sys.modules.get("ray")
    if isinstance(there, _Ray):
        return
    if there is not None:
        place = getattr(there, "__file__", None) or "somewhere"
        raise SettingError(f"ray is imported already (from {place}): call tuner.compat.install() before, or not at all")
    aliases.install(lambda: table)
    sys.meta_path.insert(0, _Finder())
    importlib.import_module("ray")
    existing.use(Existing.ASIDE)
    knobs.return_on_interrupt()
    knobs.need_no_reports()
    default.take_undeclared()
    FIRST.append("tuner.compat.in_trial")


def _installed() -> ModuleType:
    """The stand-in, in a process that has got it by name; one of Ray's own has Ray."""
    if "ray" not in sys.modules:
        install()
    return sys.modules["ray"]


class _Ray(ModuleType):
    """`ray` itself: what a Tune script does with it outside of tune, train and air."""

    __version__ = "2.60.0"
    """The newest whose names are here: scripts ask for it to choose between an older and a newer name."""

    def init(self, address: str | None = None, **settings: Any) -> _Context:
        """Without an address: trials share `num_cpus`, `num_gpus` and `resources` from now on, or all of this machine.

        With one: connect, and run trials there. `settings` are Ray's. Raises ResourceError, MissingExtraError,
        SettingError when there is no cluster at that address.
        """
        if address in (None, "local"):
            cpus, gpus, more = (settings.get(name) for name in ("num_cpus", "num_gpus", "resources"))
            if (cpus, gpus, more) != (None, None, None):
                LocalExecutor(cpus, gpus, resources=more)  # refuses what cannot be handed out, here and not in a run
                default.use(lambda: LocalExecutor(cpus, gpus, resources=more))
            return _Context(self, address)
        if isinstance(address, str) and address.startswith("ray://"):
            raise SettingError(
                f"ray.init(address={address!r}): Ray's client is not enough, the driver has to be on a node: run the "
                'script there with address="auto", or `ray start --address=...` here first'
            )
        RayExecutor(address)  # refuses what is no address
        connection.connect(address, settings)
        default.use(lambda: RayExecutor(address, options=settings))
        return _Context(self, address)

    def shutdown(self, *arguments: Any, **named: Any) -> None:
        """No service was started; what `init` gave trials to share holds no longer."""
        default.use(None)

    def is_initialized(self) -> bool:
        """True, so that nobody starts what is not needed."""
        return True

    def cluster_resources(self) -> dict[str, float]:
        """What trials share: {"CPU": 8.0, "GPU": 1.0, "memory": ...}, by Ray's names."""
        total = default.chosen(None).total()
        return {{"cpu": "CPU", "gpu": "GPU"}.get(name, name): amount for name, amount in total.items() if amount}

    available_resources = cluster_resources

    def get_gpu_ids(self) -> list[int | str]:
        """The GPUs that this process was given."""
        given = knobs.cuda_visible_devices() or ""
        return [int(part) if part.isdigit() else part for part in given.split(",") if part]

    def become_ray(self) -> None:
        """Load Ray itself into this module, once: what it defines hides what is defined here. Raises ImportError."""
        if self.__path__:
            return
        others = [finder for finder in sys.meta_path if not isinstance(finder, _Finder)]
        found = (finder.find_spec("ray", None) for finder in others if hasattr(finder, "find_spec"))
        spec = next((spec for spec in found if spec is not None), None)
        if spec is None or spec.loader is None or spec.submodule_search_locations is None:
            raise ModuleNotFoundError("No module named 'ray'", name="ray")
        self.__spec__, self.__loader__, self.__file__ = spec, spec.loader, spec.origin
        self.__path__ = list(spec.submodule_search_locations)
        utilities.forget()
        spec.loader.exec_module(self)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        try:
            return importlib.import_module(f"ray.{name}")
        except ModuleNotFoundError:
            raise AttributeError(
                f"ray.{name} has no counterpart here: tuner.compat maps ray.tune, ray.train and ray.air, and takes "
                "ray.init(), ray.shutdown() and ray.is_initialized()"
            ) from None

    def __reduce__(self) -> Any:
        return _installed, ()


class _Context:
    """What `ray.init` returns: scripts print it, or use it as a context."""

    dashboard_url = ""

    def __init__(self, of: _Ray, address: str | None) -> None:
        self._of = of
        self.address_info = {"address": address or "local", "webui_url": self.dashboard_url}

    def __getitem__(self, key: str) -> Any:
        return self.address_info[key]

    def __enter__(self) -> _Context:
        return self

    def __exit__(self, *problem: object) -> None:
        self.disconnect()

    def disconnect(self) -> None:
        """`ray.shutdown()`."""
        self._of.shutdown()


class _Finder(MetaPathFinder):
    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname == "ray":
            return ModuleSpec("ray", _RayLoader(), is_package=True)
        if not fullname.startswith("ray."):
            return None
        if examples.is_one(fullname):
            return examples.find(fullname, path)
        ours = counterpart(fullname)
        if ours is None:
            if sys.modules["ray"].__path__:
                return None  # Ray is loaded, and this is a part of it
            if fullname == "ray.cloudpickle":
                return ModuleSpec(fullname, _Alias("cloudpickle"), is_package=True)
            if (found := utilities.find(fullname)) is not None:
                return found
            raise ModuleNotFoundError(
                f"{fullname} has no counterpart here: tuner.compat maps ray.tune, ray.train and ray.air", name=fullname
            )
        if not _exists(ours):
            if any(part.startswith("_") for part in fullname.split(".")):
                raise ModuleNotFoundError(
                    f"{fullname} is inner to Ray, and not here: what is public is in ray.tune, ray.train and ray.air",
                    name=fullname,
                )
            near = nearest_name(fullname.removeprefix("ray."), [*table.sections(), *_modules_beside(ours)])
            hint = f"; did you mean ray.{near}?" if near else ""
            raise ModuleNotFoundError(f"{fullname} would be {ours}, which does not exist{hint}", name=fullname)
        return ModuleSpec(fullname, _Alias(ours), is_package=True)


def counterpart(module: str) -> str | None:
    """The module here that stands for one of Ray's, whether it is there or not; None: there is none."""
    _, package, *rest = module.split(".")
    return ".".join([table.OURS[package], *rest]) if package in table.OURS else None


def _exists(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:
        return False


def _modules_beside(module: str) -> list[str]:
    """The modules that lie where this one would, as paths of Ray's."""
    package = module.rpartition(".")[0]
    if not _exists(package):
        return []
    places = getattr(importlib.import_module(package), "__path__", ())
    below = [f"{package}.{found.name}" for found in pkgutil.iter_modules(places)]
    return [theirs for name in below for theirs in table.theirs_of(name)]


class _RayLoader(Loader):
    def create_module(self, spec: ModuleSpec) -> ModuleType:
        module = _Ray("ray", "The stand-in of tuner.compat.")
        module.__path__ = []
        return module

    def exec_module(self, module: ModuleType) -> None:
        """There is nothing to run."""


class _Alias(Loader):
    """Gives a module of ours a second name; it stays the same object, and keeps its own spec."""

    def __init__(self, ours: str) -> None:
        self._ours = ours
        self._spec: ModuleSpec | None = None

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        module = importlib.import_module(self._ours)
        self._spec = module.__spec__
        return module

    def exec_module(self, module: ModuleType) -> None:
        module.__spec__ = self._spec
