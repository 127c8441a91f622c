"""The former path of `trainables.testing.syncers`."""

from trainables.testing.syncers import check_syncer as check_syncer
