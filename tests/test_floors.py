"""The house of ARCHITECTURE.md, checked: imports run downward only, without cycles, and a few things have one place."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("trainables", "tuner")

# The longest matching prefix counts. A module may import from its own floor or one below.
FLOORS = {
    "tuner": 9,  # only its __init__: the names of all floors, loaded when they are used
    "tuner.cli": 8,
    "tuner.compat": 8,
    "tuner.testing": 8,  # fakes and conformance suites for plug-ins of others
    "tuner.run": 7,
    "tuner.tuner": 7,
    "tuner.utils": 6,
    "tuner.driver": 6,
    "tuner.tools": 6,
    "tuner.tools.prove.bootstrap": 8,  # a program of its own, which runs a script
    "tuner.opening": 5,
    "tuner.spec": 5,
    "tuner.logger": 5,
    "tuner.progress": 5,
    "tuner.progress_reporter": 5,
    "tuner.preemption": 5,
    "tuner.resources": 5,
    "tuner.executors": 4,
    "tuner.retention": 4,
    "tuner.schedulers": 4,
    "tuner.callback": 4,
    "tuner.analysis": 4,
    "tuner.result_grid": 4,
    "tuner.resume_config": 4,
    "tuner.result": 4,
    "tuner.stopper": 4,
    "tuner.experiment": 3,
    "tuner.syncer": 3,
    "tuner.integration": 2,  # other libraries' callbacks under Ray Tune's names; the work is done in trainables
    "tuner.search": 2,
    "tuner.registry": 2,
    "tuner.clock": 2,
    "tuner.error": 2,
    "tuner.knobs": 2,
    "trainables": 1,  # its names; integrations; fakes and conformance suites; whatever has no line below
    "trainables.torch": 0,
    "trainables.data_parallel_trainer": 0,
    "trainables.trainer": 0,
    "trainables.tunable_trainer": 0,
    "trainables.group": -1,
    "trainables.runtime": -2,
    "trainables.session": -3,
    "trainables.trainable": -3,
    "trainables.context": -3,
    "trainables.checkpoint": -3,
    "trainables.checkpoint_bytes": -3,
    "trainables.checkpoint_facts": -3,
    "trainables.checkpoint_files": -3,
    "trainables.config": -3,
    "trainables.sync_config": -3,
    "trainables.pickling": -3,
    "trainables.result": -3,
    "trainables.result_history": -3,
    "trainables.transfer": -4,
    "trainables.transfer.conformance_syncer": 1,  # the old name of what lies in trainables.testing
    "trainables.store": -5,
    "trainables.job": -6,
    "trainables.wire": -6,
    "trainables.checkpoint_config": -6,
    "trainables.net": -7,
    "trainables.automatic": -8,  # leaves: of ours they import one another
    "trainables.door": -8,
    "trainables.errors": -8,
    "trainables.knobs": -8,
    "trainables.masking": -8,
    "trainables.metrics": -8,
    "trainables.owned_directory": -8,
    "trainables.places": -8,
    "trainables.plain_metrics": -8,
    "trainables.printable": -8,
    "trainables.starting": -8,
    "trainables.tagged": -8,
    "trainables.tagged_kinds": -8,
    "trainables.threads": -8,
    "trainables.validation": -8,
    "trainables.warned": -8,
}

# A trainer's fit() / run() imports the tuner when it is called: the one door upstairs.
DOORS = {("trainables.door", "tuner")}


def floor_of(module: str) -> int:
    """The floor of a module: that of the longest prefix in the table; the package itself counts only as itself."""
    parts = module.split(".")
    for length in range(len(parts), 1, -1):
        found = FLOORS.get(".".join(parts[:length]))
        if found is not None:
            return found
    if module == "tuner":
        return FLOORS["tuner"]
    if parts[0] == "trainables":
        return FLOORS["trainables"]
    raise AssertionError(f"{module} has no floor: say in tests/test_floors.py where it stands")


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
    upward = [
        f"{module}:{line} (floor {floor_of(module)}) imports {imported} (floor {floor_of(imported)})"
        for module, imported, line in edges()
        if floor_of(imported) > floor_of(module) and (module, imported.split(".")[0]) not in DOORS
    ]
    assert not upward, "\n".join(upward)


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


CLOCKS = {"tuner.clock"}
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


def test_nothing_below_floor_5_asks_for_the_time() -> None:
    wrong = []
    for module, tree in modules().items():
        if floor_of(module) >= 5 or module in CLOCKS:
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
