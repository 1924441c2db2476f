"""One cluster for the tests of a module, with the chart's own ServiceAccounts and rights."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.real_kube.chart import install
from tests.real_kube.servers import RealCluster


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealCluster]:
    """A node with a card, a team with a tenant, and the chart's rights, applied by kubectl."""
    made = RealCluster(tmp_path_factory.mktemp("kube") / "c1")
    try:
        made.start()
        install(made)
        yield made
    finally:
        made.stop()
