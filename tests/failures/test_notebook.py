"""A run in a real Jupyter kernel: it shows how it stands, an interrupt returns the results, a resume goes on (F37)."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.tuner.ui.made import is_made

pytest.importorskip("ipykernel")
manager = pytest.importorskip("jupyter_client.manager")

PATIENCE_S = 90.0

RUN = """
import tuner as tune

class Saves(tune.Trainable):
    def setup(self, config):
        self.count = 0
    def step(self):
        import time
        time.sleep(0.01)  # as long as some work takes
        self.count += 1
        return {"count": self.count}
    def save_checkpoint(self, directory):
        return {"count": self.count}
    def load_checkpoint(self, saved):
        self.count = saved["count"]

class Says(tune.Callback):
    def on_trial_result(self, iteration, trials, trial, result, **info):
        if result["training_iteration"] == 5:
            print("it runs", flush=True)

def run(**more):
    return tune.run(Saves, name="e", config={"lr": 0.1}, metric="count", mode="max", storage_path=PLACE, **more)
"""


class Kernel:
    """A kernel, and what it has shown so far."""

    def __init__(self, manager: Any, client: Any) -> None:
        self.manager, self._client = manager, client
        self.text = ""
        self.stopped: list[str] = []
        self.html: list[str] = []

    def start(self, code: str) -> str:
        return str(self._client.execute(code))

    def run(self, code: str) -> None:
        self.wait(self.start(code))

    def wait(self, cell: str, until: Callable[[], bool] = lambda: False) -> None:
        """Listen until the cell has ended, or before that."""
        end = time.monotonic() + PATIENCE_S
        while not until():
            message = self._client.get_iopub_msg(timeout=max(0.0, end - time.monotonic()))
            if message["parent_header"].get("msg_id") != cell:
                continue
            kind, content = message["msg_type"], message["content"]
            if kind == "stream":
                self.text += content["text"]
            elif kind in ("display_data", "update_display_data", "execute_result"):
                self.html.append(content["data"].get("text/html", ""))
            elif kind == "error":
                if content["ename"] != "Interrupted":
                    raise AssertionError("\n".join(content["traceback"]))
                self.stopped = content["traceback"]
            elif kind == "status" and content["execution_state"] == "idle":
                return


@pytest.fixture
def kernel(tmp_path: Path) -> Iterator[Kernel]:
    root = str(Path(__file__).resolve().parents[2])
    made, client = manager.start_new_kernel(kernel_name="python3", startup_timeout=PATIENCE_S, cwd=str(tmp_path))
    try:
        kernel = Kernel(made, client)
        kernel.run(f"import sys; sys.path.insert(0, {root!r}); PLACE = {str(tmp_path / 'results')!r}")
        kernel.run(RUN)
        yield kernel
    finally:
        client.stop_channels()
        made.shutdown_kernel(now=True)


@pytest.mark.skipif(sys.platform != "linux", reason="runs on Linux")
def test_f37_an_interrupt_in_a_notebook_shows_three_lines_and_the_next_cell_goes_on(kernel: Kernel) -> None:
    cell = kernel.start("analysis = run(callbacks=[Says()])\nprint('returned')")
    kernel.wait(cell, lambda: "it runs" in kernel.text)
    kernel.manager.interrupt_kernel()
    kernel.wait(cell)

    assert "stopping: 1 trial saves what it can" in kernel.text and "returned" not in kernel.text
    assert len(kernel.stopped) == 3 and 'resume="AUTO"' in kernel.stopped[1]
    assert any("<table>" in html and "paused" in html for html in kernel.html)
    assert any("best count" in html and "<progress " in html for html in kernel.html)

    kernel.text = ""
    kernel.run(
        "analysis = sys.last_value.analysis\n"
        "before = analysis.trials[0].iteration\n"
        "again = run(resume='AUTO', stop={'count': before + 3})\n"
        "print('then', again.trials[0].status, again.trials[0].iteration - before, again.best_config['lr'])"
    )
    assert "then TERMINATED 3 0.1" in kernel.text

    kernel.text, kernel.html = "", []
    kernel.run("again")
    assert "<td" in kernel.html[0] and "1 trials (1 done), by count (max)" in kernel.html[0]
    for shown in (
        "again.plot('history')",
        "again.plot('history').show()",
        "again.plot()",
        *(["again.ui()", "again.ui(height=300)"] if is_made else []),
    ):  # without nbformat, which plotly's own way there needs
        kernel.run(f"sys.modules['nbformat'] = None  # which plotly's own way there needs\n{shown}")
        assert kernel.html.pop().startswith("<iframe srcdoc=") and kernel.text == ""

    kernel.run("import signal; print(signal.getsignal(signal.SIGINT) is signal.default_int_handler)")
    assert kernel.text.strip() == "True"  # the notebook's own again

    kernel.html.clear()
    kernel.run(
        "def fails(config):\n    return 1 / 0\n"
        "try:\n    tune.run(fails, storage_path=PLACE)\n"
        "except tune.TuneError as error:\n    said = str(error)"
    )
    kernel.text = ""
    kernel.run("print(said)")
    (folded,) = [html for html in kernel.html if html.startswith("<details>")]
    assert "error.txt" in folded.partition("</summary>")[0] and "return 1 / 0" in folded.partition("</summary>")[2]
    assert "ZeroDivisionError" in kernel.text and "return 1 / 0" not in kernel.text, "that is shown once"
