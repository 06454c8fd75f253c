"""A launcher of Hydra whose sweeps are arrays of Trainmaster.

Hydra looks for plugins by running this file under no name, where annotations that are text cannot be read.
"""

import logging
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hydra.core.config_store import ConfigStore
from hydra.core.singleton import Singleton
from hydra.core.utils import (
    JobReturn,
    JobStatus,
    configure_log,
    filter_overrides,
    run_job,
    setup_globals,
)
from hydra.plugins.launcher import Launcher
from hydra.types import HydraContext, TaskFunction
from omegaconf import DictConfig, OmegaConf, open_dict

import trainmaster

log = logging.getLogger(__name__)

USUAL_FIELDS = ("name", "gpus", "queue", "cpus", "memory", "max_runtime", "retries", "ranks")
"""Fields of jobs that can be set without a `+`."""


@dataclass
class TrainmasterLauncherConf:
    """`hydra.launcher` of a program."""

    _target_: str = "hydra_plugins.trainmaster_launcher.launcher.TrainmasterLauncher"
    url: str | None = None
    data: str | None = None
    token_file: str | None = None
    folder: str | None = None
    at_once: int | None = None
    job: dict[str, Any] = field(default_factory=lambda: dict.fromkeys(USUAL_FIELDS))
    """Fields of the job file."""


ConfigStore.instance().store(
    group="hydra/launcher", name="trainmaster", node=TrainmasterLauncherConf, provider="trainmaster"
)


class TrainmasterLauncher(Launcher):
    """Submits each batch of a sweep as one array, and waits for it."""

    def __init__(
        self,
        url: str | None = None,
        data: str | None = None,
        token_file: str | None = None,
        folder: str | None = None,
        at_once: int | None = None,
        job: DictConfig | None = None,
    ) -> None:
        self._manager = {"url": url, "data": data, "token_file": token_file, "folder": folder}
        self._at_once = at_once
        stated: Any = OmegaConf.to_container(job) if job is not None else {}
        self._job = {name: value for name, value in stated.items() if value is not None}
        self._sweep: tuple[HydraContext, TaskFunction, DictConfig] | None = None

    def setup(
        self, *, hydra_context: HydraContext, task_function: TaskFunction, config: DictConfig
    ) -> None:
        self._sweep = hydra_context, task_function, config

    def launch(
        self, job_overrides: Sequence[Sequence[str]], initial_job_idx: int
    ) -> Sequence[JobReturn]:
        setup_globals()
        assert self._sweep is not None
        context, task, config = self._sweep
        configure_log(config.hydra.hydra_logging, config.hydra.verbose)
        Path(str(config.hydra.sweep.dir)).mkdir(parents=True, exist_ok=True)
        overrides = [list(each) for each in job_overrides]
        numbers = range(initial_job_idx, initial_job_idx + len(overrides))
        for number, each in zip(numbers, overrides, strict=True):
            log.info(f"\t#{number} : {' '.join(filter_overrides(each))}")
        fields = {"name": config.hydra.job.name, **self._job}
        client = trainmaster.Client(**self._manager, **fields)
        state = Singleton.get_state()
        run = _OneJob(context, task, config, state)
        jobs = client.map(run, overrides, numbers, at_once=self._at_once)
        log.info(f"Array {jobs.id} of {len(jobs)} jobs: `trainmaster ps` shows it.")
        return [_answer(found) for found in jobs.results(return_exceptions=True)]


@dataclass(frozen=True)
class _OneJob:
    """What runs in a job."""

    context: HydraContext
    task: TaskFunction
    config: DictConfig
    state: Any

    def __call__(self, overrides: list[str], number: int) -> JobReturn:
        Singleton.set_state(self.state)
        setup_globals()
        config = self.context.config_loader.load_sweep_config(self.config, overrides)
        with open_dict(config):
            config.hydra.job.id = config.hydra.job.num = number
        found = run_job(
            hydra_context=self.context,
            task_function=self.task,
            config=config,
            job_dir_key="hydra.sweep.dir",
            job_subdir_key="hydra.sweep.subdir",
        )
        _ = found.return_value  # raises what the program raised, so that the job fails
        return found


def _answer(found: Any) -> JobReturn:
    """What a job returned; where it failed, its error, which Hydra raises when it looks."""
    if isinstance(found, JobReturn):
        return found
    failed = JobReturn(status=JobStatus.FAILED)
    failed.return_value = found
    return failed
