"""A script without `if __name__ == "__main__"`, whose trials use what it defines: `... DIRECTORY [ARGUMENT...]`."""

import pickle
import sys
from pathlib import Path

from driving import Driver, StandInExecutor

print("the script runs")


class Model:
    def __init__(self, x):
        self.x = x


def helper(x):
    return Model(x)


executor = StandInExecutor(cpus=2)
executor.start(
    lambda config, talk: talk.report(x=pickle.loads(pickle.dumps(helper(config["x"]))).x, argv=sys.argv[2:]),
    temporary=Path(sys.argv[1]),
)
driver = Driver(executor, sys.argv[1])
trials = [driver.launch({"x": x}) for x in range(3)]
driver.finish_all()
print([driver.reports(t) for t in trials])
executor.shutdown()
