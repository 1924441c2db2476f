"""Runs in a process of its own, where pynvml finds the mock library: a script in, readings out.

Standard input is JSON: the steps, each `["answers", TEXT]`, `["open"]`, `["read"]`, `["close"]`,
`["clock", SECONDS]` (both clocks) or `["calls", FUNCTION]`. Standard output is JSON: for each open, read
and close what it gave, as `{"readings": […]}`, `{"down": REASON, "detail": …}` or `{}`, and for calls how
often the driver's function was called so far, as `{"calls": NUMBER}`.
"""

from __future__ import annotations

import json
import logging
import os
import pathlib
import sys

import msgspec

from exporter.nvidia.nvml import NvmlSource
from exporter.nvidia.source import SourceDownError


def main() -> None:
    """Play the steps."""
    logging.basicConfig(level=logging.INFO, stream=sys.stderr)
    now = [0.0]
    source = NvmlSource(clock=lambda: now[0], monotonic=lambda: now[0])
    answers = pathlib.Path(os.environ["MOCK_NVML"])
    calls = answers.with_name(answers.name + ".calls")
    given: list[object] = []
    for step, *argument in json.load(sys.stdin):
        if step == "answers":
            answers.write_text(argument[0])
            continue
        if step == "calls":
            lines = calls.read_text().splitlines()
            given.append({"calls": sum(line.split()[1] == argument[0] for line in lines)})
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
                {} if readings is None else {"readings": [msgspec.to_builtins(each) for each in readings]}
            )
    print(json.dumps(given))


if __name__ == "__main__":
    main()
