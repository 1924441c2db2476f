"""Render every file of `charts/slicemeter/ci` again into `tests/charts/golden`."""

from __future__ import annotations

import sys

from tests.charts.rendering import CASES, GOLDEN, SOURCES, canonical, golden_of, helms, sources, template


def main() -> int:
    """Write the goldens; 1 when there is no Helm."""
    programs = helms()
    if not programs:
        print(
            "no helm: put one on the PATH, name it with HELM=…, or fetch one with: make chart-tools",
            file=sys.stderr,
        )
        return 1
    GOLDEN.mkdir(exist_ok=True)
    for path in GOLDEN.glob("*.yaml"):
        path.unlink()
    for values in CASES:
        golden_of(values).write_text(canonical(template(programs[0], values)), encoding="utf-8")
        print(golden_of(values).name)
    SOURCES.write_text(sources(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
