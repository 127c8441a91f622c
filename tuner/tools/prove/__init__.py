"""Proofs that training continues: a run without a kill, a run that is killed again and again, and what differs.

`tuner prove` does it with a whole script, `tuner.testing.prove` with a trainable inside a test.
"""
