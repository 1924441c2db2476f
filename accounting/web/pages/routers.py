"""Every router of pages; its paths begin behind `/ui`."""

from __future__ import annotations

from collections.abc import Sequence

from fastapi import APIRouter

ROUTERS: Sequence[APIRouter] = ()
