"""What every integration test may ask for."""

import os
import re
import sys

import pytest

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "support"))

from lockbroker import Lab  # noqa: E402


@pytest.fixture
def lab():
    """A directory to start servers in; whatever a test starts there is ended with the test."""
    with Lab() as it:
        yield it


@pytest.fixture
def redis(lab):
    return lab.redis()


@pytest.fixture
def daemon(lab, redis):
    """One broker on one Redis."""
    return lab.daemon(redis)


@pytest.fixture
def client(daemon):
    return daemon.client()


@pytest.fixture
def key(request):
    """A key that no other test uses."""
    return re.sub(r"[^a-z0-9_]", "-", request.node.name.lower())
