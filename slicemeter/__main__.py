"""`python -m slicemeter`."""

from __future__ import annotations

import sys

from slicemeter.cli import main

sys.exit(main())
