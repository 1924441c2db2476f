"""The accounting commands as a user types them and sees them answer."""

from __future__ import annotations

import json
from dataclasses import dataclass

import pytest

from slicemeter.accounting import main


@dataclass
class Shell:
    """Runs commands on one database; output as a user sees it."""

    url: str
    capture: pytest.CaptureFixture[str]

    def __call__(self, *words: str) -> tuple[int, str, str]:
        try:
            code = main([*words, "--database", self.url])
        except SystemExit as exit_:
            code = int(str(exit_.code))
        output = self.capture.readouterr()
        return code, output.out, output.err

    def json(self, *words: str) -> dict[str, object]:
        code, out, err = self(*words, "--json")
        assert (code, err) == (0, "")
        document = json.loads(out)
        assert isinstance(document, dict)
        return document
