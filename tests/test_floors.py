"""The house of ARCHITECTURE.md, checked: imports run downward only, without cycles, and a few things have one place."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("trainables", "tuner", "hydra_plugins")

# From the top down; the longest prefix counts. A module imports from floors below its own, and from its own line.
FLOORS = {
    "hydra_plugins.tuner_sweeper": 28,
    "tuner.cli": 27,
    "tuner.testing": 27,  # fakes and conformance suites for plug-ins of others
    "tuner": 27,  # only its __init__: the names of all floors, loaded when they are used
    "tuner.mcp": 26,
    "tuner.ui": 25,
    "tuner.asking": 24,
    "tuner.run": 24,
    "tuner.tuner": 23,
    "tuner.driver": 22,
    "tuner.progress_reporter": 22,
    "tuner.opened_experiment": 22,
    "tuner.tools": 24,
    "tuner.cli.config_file": 23,  # config files, for whoever starts one
    "tuner.cli.command_keys": 22,
    "tuner.cli.load_object": 22,
    "tuner.cli.executor_key": 22,
    "tuner.cli.yaml_space": 22,
    "tuner.compat": 21,
    "tuner.inspection": 21,
    "tuner.opening": 21,
    "tuner.progress": 21,
    "tuner.addresses": 20,
    "tuner.analysis": 20,
    "tuner.logger": 20,
    "tuner.orders": 20,
    "tuner.preemption": 20,
    "tuner.retention": 20,
    "tuner.spec": 20,
    "tuner.utils": 20,
    "tuner.callback": 19,
    "tuner.executors": 19,
    "tuner.orders.settable": 19,
    "tuner.resume_config": 19,
    "tuner.schedulers": 19,
    "tuner.stopper": 19,
    "tuner.syncer": 19,
    "tuner.experiment": 18,
    "tuner.knobs": 17,
    "tuner.slow_calls": 17,
    "tuner.registry": 17,
    "tuner.resources": 17,
    "tuner.search": 17,
    "tuner.clock": 16,
    "tuner.error": 16,
    "tuner.freed_memory": 16,
    "tuner.tracking": 21,
    "tuner.integration": 16,  # other libraries' callbacks under Ray Tune's names; the work is done in trainables
    "tuner.result": 16,
    "trainables": 15,  # only its __init__
    "trainables.first_generation": 14,
    "trainables.keras": 14,
    "trainables.lightning": 14,
    "trainables.torch": 13,
    "trainables.training_run": 13,
    "trainables.data_parallel_trainer": 12,
    "trainables.lightgbm": 12,
    "trainables.xgboost": 12,
    "trainables.boosting": 11,
    "trainables.collective": 11,
    "trainables.command": 11,
    "trainables.group": 11,
    "trainables.huggingface": 11,
    "trainables.testing": 11,
    "trainables.parameters": 10,
    "trainables.tracking": 11,
    "trainables.reporting": 10,
    "trainables.runtime": 10,
    "trainables.sklearn": 10,
    "trainables.trainer": 10,
    "trainables.result": 9,
    "trainables.session": 9,
    "trainables.trainable": 9,
    "trainables.trainable_facts": 8,
    "trainables.tunable_trainer": 9,
    "trainables.checkpoint": 8,
    "trainables.config": 8,
    "trainables.checkpoint_facts": 7,
    "trainables.checkpoint_older": 7,
    "trainables.sync_config": 7,
    "trainables.checkpoint_bytes": 6,
    "trainables.checkpoint_files": 6,
    "trainables.context": 6,
    "trainables.html_tables": 6,
    "trainables.pickling": 6,
    "trainables.transfer": 6,
    "trainables.job": 5,
    "trainables.result_history": 5,
    "trainables.socket_link": 5,
    "trainables.store": 5,
    "trainables.bundles": 4,
    "trainables.checkpoint_config": 4,
    "trainables.plain_json": 4,
    "trainables.plain_metrics": 4,
    "trainables.tagged": 4,
    "trainables.wire": 4,
    "trainables.bound_objects": 3,
    "trainables.net": 3,
    "trainables.net.listener": 4,
    "trainables.starting": 3,
    "trainables.tagged_kinds": 3,
    "trainables.validation": 3,
    "trainables.errors": 2,
    "trainables.metrics": 2,
    "trainables.dominance": 1,
    "trainables.absent": 1,
    "trainables.aliases": 1,
    "trainables.arrow_filesystem": 3,
    "trainables.address_finder": 1,
    "trainables.addresses": 2,
    "trainables.automatic": 1,
    "trainables.decoding": 1,
    "trainables.door": 3,
    "trainables.extras": 1,
    "trainables.knobs": 1,
    "trainables.masking": 1,
    "trainables.near_misses": 1,
    "trainables.places": 1,
    "trainables.printable": 1,
    "trainables.quick_dataclass": 0,
    "trainables.threads": 1,
    "trainables.user_frames": 1,
    "trainables.warned": 1,
}

# A trainer's fit() / run() imports the tuner when it is called, a name of Ray's its table: the door upstairs.
# An analysis shows itself as the page that is made of the same data.
DOORS = {("trainables.door", "tuner"), ("tuner.analysis.experiment_page", "tuner.ui")}


def line_of(module: str) -> str:
    """The line of the table that a module belongs to; those of the two packages are for their `__init__` alone."""
    parts = module.split(".")
    for length in range(len(parts), 0, -1):
        found = ".".join(parts[:length])
        if found in FLOORS and (length > 1 or module == found):
            return found
    raise AssertionError(f"{module} has no floor: say in tests/test_floors.py where it stands")


def floor_of(module: str) -> int:
    return FLOORS[line_of(module)]


@cache
def modules() -> dict[str, ast.Module]:
    """Every module of both packages, parsed."""
    found = {}
    for package in PACKAGES:
        for file in sorted((ROOT / package).rglob("*.py")):
            parts = list(file.relative_to(ROOT).with_suffix("").parts)
            if parts[-1] == "__init__":
                parts.pop()
            found[".".join(parts)] = ast.parse(file.read_text("utf-8"), str(file))
    return found


def imports_of(module: str, tree: ast.AST) -> Iterator[tuple[str, int]]:
    """(imported module of ours, line), function-level and typing-only imports too."""
    known = modules()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name.split(".")[0] in PACKAGES:
                    yield alias.name, node.lineno
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{module}:{node.lineno}: a relative import"
            if node.module is None or node.module.split(".")[0] not in PACKAGES:
                continue
            for alias in node.names:
                inner = f"{node.module}.{alias.name}"
                yield (inner if inner in known else node.module), node.lineno
        elif isinstance(node, ast.Constant) and node.value in known and node.value not in PACKAGES:
            if line_of(node.value) == line_of(module):
                continue
            yield node.value, node.lineno  # hidden in a string, for whoever imports it by that


def edges() -> Iterator[tuple[str, str, int]]:
    for module, tree in modules().items():
        for imported, line in imports_of(module, tree):
            yield module, imported, line


def test_every_module_has_a_floor() -> None:
    for module in modules():
        floor_of(module)


def test_what_the_tables_name_is_there() -> None:
    named = {*FLOORS, *CLOCKS, *PURE, *(module for module, _ in DOORS)}
    assert not named - set(modules()), "say in tests/test_floors.py where they are now"


def test_imports_run_downward_only() -> None:
    wrong = [
        f"{module}:{line} (floor {floor_of(module)}) imports {imported} (floor {floor_of(imported)})"
        for module, imported, line in edges()
        if line_of(imported) != line_of(module)
        and floor_of(imported) >= floor_of(module)
        and not any(module == door and f"{imported}.".startswith(f"{up}.") for door, up in DOORS)
    ]
    assert not wrong, "\n".join(wrong)


def test_trainables_never_imports_tuner() -> None:
    wrong = [
        f"{module}:{line} imports {imported}"
        for module, imported, line in edges()
        if module.split(".")[0] == "trainables" and imported.split(".")[0] == "tuner" and (module, "tuner") not in DOORS
    ]
    assert not wrong, "\n".join(wrong)


def test_there_are_no_cycles() -> None:
    graph: dict[str, set[str]] = {module: set() for module in modules()}
    for module, imported, _ in edges():
        if imported != module:
            graph[module].add(imported)
    done: set[str] = set()

    def visit(module: str, path: list[str]) -> None:
        assert module not in path, "a cycle: " + " -> ".join([*path[path.index(module) :], module])
        if module in done:
            return
        for following in sorted(graph.get(module, ())):
            visit(following, [*path, module])
        done.add(module)

    for module in graph:
        visit(module, [])


def test_the_environment_is_read_in_knobs_only() -> None:
    wrong = []
    for module, tree in modules().items():
        if module.split(".")[-1] == "knobs":
            continue
        written = {
            id(target.value)
            for node in ast.walk(tree)
            for target in _targets(node)
            if isinstance(target, ast.Subscript | ast.Attribute)
        }
        for node in ast.walk(tree):
            reads = isinstance(node, ast.Attribute) and (
                (ast.unparse(node) == "os.environ" and id(node) not in written) or ast.unparse(node) == "os.getenv"
            )
            if reads or (isinstance(node, ast.ImportFrom) and node.module == "os" and _names(node) & _ENVIRONMENT):
                wrong.append(f"{module}:{node.lineno}")
    assert not wrong, "read through knobs.py instead:\n" + "\n".join(wrong)


CLOCKS = ("tuner.clock", "tuner.logger.tensorboard")
PURE = (
    "tuner.schedulers",
    "tuner.stopper",
    "tuner.experiment.state",
    "tuner.experiment.events",
    "trainables.store.retention",
    "trainables.store.pareto_front",
)
"""Get facts and return values."""
_ENVIRONMENT = {"environ", "getenv", "environb"}
_CLOCK = {"time.time", "time.time_ns", "datetime.now", "datetime.datetime.now", "datetime.utcnow", "date.today"}


def _targets(node: ast.AST) -> list[ast.expr]:
    """What a statement writes to: `os.environ[name] = ...`, `del ...`, `os.environ.update(...)`."""
    if isinstance(node, ast.Assign | ast.Delete):
        return node.targets
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in ("update", "clear"):
        return [node.func]
    return []


def _names(node: ast.ImportFrom) -> set[str]:
    return {alias.name for alias in node.names}


def test_nothing_but_the_clock_tells_the_time() -> None:
    wrong = []
    for module, tree in modules().items():
        if module.startswith(CLOCKS):
            continue
        wrong += [
            f"{module}:{node.lineno} calls {ast.unparse(node.func)}()"
            for node in ast.walk(tree)
            if isinstance(node, ast.Call) and ast.unparse(node.func) in _CLOCK
        ]
    assert not wrong, "the clock is injected:\n" + "\n".join(wrong)


def test_plug_ins_and_state_do_no_input_or_output() -> None:
    """Schedulers, searchers, stoppers, pure policies and the state get facts and return values."""
    forbidden = {"os", "shutil", "subprocess", "socket", "threading", "tempfile", "random.seed"}
    wrong = []
    for module, tree in modules().items():
        if not module.startswith(PURE):
            continue
        for node in ast.walk(tree):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom) and node.module:
                names = [node.module]
            wrong += [f"{module}:{node.lineno} imports {name}" for name in names if name in forbidden]
    assert not wrong, "\n".join(wrong)
