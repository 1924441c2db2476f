"""One hand-made cluster."""

from __future__ import annotations

import pytest

from tests.exporter.cluster.handmade import Cluster, make_cluster


@pytest.fixture
def cluster() -> Cluster:
    """One A100, namespace `team` of tenant-a, nothing running."""
    return make_cluster()
