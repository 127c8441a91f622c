"""Replicas of an experiment. `SyncConfig` says where; a `Syncer` of one's own says how."""

from trainables.config import SyncConfig
from trainables.transfer.user import Syncer

__all__ = ["SyncConfig", "Syncer"]
