"""The plug-ins of an experiment (searcher, scheduler, stopper, callbacks), and what tells them of facts."""

from tuner.driver.plugins.applying import FactApplier, Heard
from tuner.driver.plugins.plugin_set import PluginSet
from tuner.driver.plugins.trial_source import TrialSource

__all__ = ["FactApplier", "Heard", "PluginSet", "TrialSource"]
