"""A module of a user's, whose trainable refers to others in many ways."""

# ruff: noqa: E731, F401, F841
import json


def helper():
    import decimal

    return Other().method()


def not_used():
    import xml.dom


class Other:
    def method(self):
        from importlib import metadata, resources

        return json.dumps({})


def trainable(config):
    inner = lambda: __import__("x")

    def deeper():
        from concurrent import futures

    return helper()
