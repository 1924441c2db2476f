"""Runs in a process of its own, where pynvml finds the mock library: a script in, readings out.

Standard input is JSON: the steps, each `["answers", TEXT]`, `["open"]`, `["read"]`, `["close"]` or
`["clock", SECONDS]`. Standard output is JSON: for each open, read and close what it gave, as
`{"readings": […]}`, `{"down": REASON, "detail": …}` or `{}`.
"""

from __future__ import annotations

import dataclasses
import json
import logging
import os
import pathlib
import sys

from exporter.nvidia.nvml import NvmlSource
from exporter.nvidia.source import SourceDownError


def main() -> None:
    """Play the steps."""
    logging.basicConfig(level=logging.INFO, stream=sys.stderr)
    now = [0.0]
    source = NvmlSource(clock=lambda: now[0])
    given: list[object] = []
    for step, *argument in json.load(sys.stdin):
        if step == "answers":
            pathlib.Path(os.environ["MOCK_NVML"]).write_text(argument[0])
            continue
        if step == "clock":
            now[0] = argument[0]
            continue
        try:
            readings = getattr(source, step)()
        except SourceDownError as error:
            given.append({"down": error.reason, "detail": error.detail})
        else:
            given.append(
                {} if readings is None else {"readings": [dataclasses.asdict(each) for each in readings]}
            )
    print(json.dumps(given))


if __name__ == "__main__":
    main()
