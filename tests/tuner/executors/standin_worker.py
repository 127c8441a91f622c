"""A worker with nothing in it but the line to the driver: `trainable(config, talk)`."""

from __future__ import annotations

import json
import random
import traceback
from typing import Any

import msgspec

from trainables.job import Job
from trainables.wire import Answer, AttemptErrored, CheckpointRef, DriverLink, Finished, Report, SavePublished


class Stopped(BaseException):
    pass


class Talk:
    def __init__(self, job: Job, link: DriverLink) -> None:
        self.job, self.link, self.iteration = job, link, 0

    def report(self, **metrics: Any) -> Answer:
        self.iteration += 1
        answer = self.link.call(Report(self.iteration, msgspec.Raw(json.dumps(metrics).encode())))
        if answer.then != "continue":
            raise Stopped
        return answer

    def published(self, index: int) -> None:
        ref = CheckpointRef(self.job.trial_id, f"checkpoint_{index:06}", 1, self.job.attempt, index, index)
        self.link.post(SavePublished(ref, 1, ""))


def run_job(job: Job, trainable: Any, link: DriverLink) -> None:
    random.seed(f"{job.seed}/{job.index}")
    try:
        trainable(job.config, Talk(job, link))
    except Stopped:
        pass
    except Exception as error:
        link.send(AttemptErrored(type(error).__name__, str(error), traceback.format_exc()))
        return
    link.send(Finished())
