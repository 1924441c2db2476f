"""Print what is installed in this environment as a CycloneDX 1.6 bill of materials.

The bytes are a function of what is installed alone: no time, no serial number.
"""

from __future__ import annotations

import json
from importlib.metadata import Distribution, distributions


def bill(installed: list[Distribution]) -> dict[str, object]:
    """The document; components by name.

    Args:
        installed: The distributions of an environment.
    """
    components = [_component(each) for each in sorted(installed, key=lambda each: each.name.lower())]
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {"component": {"type": "container", "name": "slicemeter", "bom-ref": "slicemeter-image"}},
        "components": components,
    }


def _component(each: Distribution) -> dict[str, object]:
    name, version = each.name, each.version
    purl = f"pkg:pypi/{name.lower().replace('_', '-')}@{version}"
    found: dict[str, object] = {
        "type": "library",
        "name": name,
        "version": version,
        "purl": purl,
        "bom-ref": purl,
    }
    if "License-Expression" in each.metadata:
        found["licenses"] = [{"expression": each.metadata["License-Expression"]}]
    return found


if __name__ == "__main__":
    print(json.dumps(bill(list(distributions())), indent=2))
