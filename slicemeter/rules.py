"""`slicemeter rules build DIR | rehearse [SCENE …]`."""

from __future__ import annotations

import argparse
import importlib
import sys
from collections.abc import Sequence
from pathlib import Path

import yaml

from dashboards.rules.files import RUNBOOKS, Addresses, chart_files, operator_file, plain_files
from dashboards.rules.table import SWITCHES, chosen
from dashboards.thresholds import Thresholds, with_changes
from dashboards.writing import write

_OURS = frozenset({"slicemeter", "contract", "lab", "exporter", "accounting", "dashboards"})
_REHEARSE = "play scenes on this computer and see which alerts arrive"


def main(argv: Sequence[str]) -> int:
    """Write the recording rules and alerts into a folder and say where, or try them out."""
    arguments = _parser().parse_args(argv)
    if arguments.action == "rehearse":
        return _rehearse(arguments)
    try:
        files = _files(arguments)
        paths = write(files, arguments.folder)
    except (TypeError, ValueError) as error:
        print(f"slicemeter rules: {error}", file=sys.stderr)
        return 2
    except OSError as error:
        print(f"slicemeter rules: {error.filename}: {error.strerror}", file=sys.stderr)
        return 2
    for path in paths:
        print(path)
    left = sorted(set(arguments.folder.glob("slicemeter-*.rules.yaml")) - set(paths))
    if left and arguments.form == "plain":
        names = ", ".join(path.name for path in left)
        print(f"left from before, not written now: {names}; remove what you do not want", file=sys.stderr)
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="slicemeter rules", description="Write recording rules and alerts.")
    actions = parser.add_subparsers(title="commands", dest="action", required=True, metavar="COMMAND")
    build = actions.add_parser("build", help="write rule files (Prometheus 2.42 or newer)")
    build.add_argument("folder", metavar="DIR", type=Path, help="folder to write into; made if need be")
    build.add_argument(
        "--form",
        choices=("plain", "operator", "chart"),
        default="plain",
        help="plain rule files, one a group; a PrometheusRule object; or the chart's templates (%(default)s)",
    )
    build.add_argument(
        "--enable",
        metavar="GROUP",
        action="append",
        default=[],
        help=f"also write this group, off by default: {', '.join(SWITCHES)}, or all; may be repeated",
    )
    build.add_argument(
        "--thresholds",
        metavar="FILE",
        type=Path,
        help="YAML with thresholds to change, as `near_limit_ratio: 0.9`; see docs/alerts.md",
    )
    build.add_argument(
        "--label",
        metavar="NAME=VALUE",
        action="append",
        default=[],
        help="label of the PrometheusRule object, as its operator's selector wants it; may be repeated",
    )
    build.add_argument(
        "--runbooks", metavar="URL", default=RUNBOOKS, help="where the runbook pages are (%(default)s)"
    )
    build.add_argument(
        "--grafana", metavar="URL", default="", help="address of Grafana, put before dashboard links (none)"
    )
    _add_rehearse(actions.add_parser("rehearse", help=_REHEARSE))
    return parser


def _add_rehearse(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Plays scenes with real exporters, accounting, Prometheus and Alertmanager on this computer, no GPU "
        "and no cluster, and prints which alerts had to arrive and which did; exit 1 if one is off."
    )
    parser.add_argument("scenes", metavar="SCENE", nargs="*", help="which scenes; all if none is named")
    parser.add_argument("--list", action="store_true", help="print the scenes and end")
    parser.add_argument(
        "--minute",
        metavar="SECONDS",
        type=int,
        choices=range(1, 61),
        default=1,
        help="seconds that a minute of the rules takes, 1 to 60: more on a slow machine (%(default)s)",
    )


def _rehearse(arguments: argparse.Namespace) -> int:
    try:
        rehearse = importlib.import_module("slicemeter.rehearse")
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] in _OURS:
            raise
        print(
            f"slicemeter rules: rehearse needs the package {error.name}; install it with: "
            'pip install "slicemeter[lab]"',
            file=sys.stderr,
        )
        return 2
    return int(rehearse.main(arguments.scenes, arguments.minute, is_list=arguments.list))


def _files(arguments: argparse.Namespace) -> dict[str, str]:
    if arguments.form == "chart":
        return chart_files()
    enabled = SWITCHES if "all" in arguments.enable else arguments.enable
    groups = chosen(enabled, _thresholds(arguments.thresholds))
    addresses = Addresses(runbooks=arguments.runbooks, grafana=arguments.grafana)
    if arguments.form == "operator":
        return operator_file(groups, addresses, labels=dict(_label(each) for each in arguments.label))
    return plain_files(groups, addresses)


def _thresholds(path: Path | None) -> Thresholds:
    if path is None:
        return Thresholds()
    try:
        document = yaml.safe_load(path.read_text(encoding="utf-8")) or {}
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ValueError(f"{path}: no YAML: {' '.join(str(error).split())}") from None
    if not isinstance(document, dict):
        raise TypeError(f"{path}: not a list of thresholds; write lines as `near_limit_ratio: 0.9`")
    try:
        return with_changes({str(name): value for name, value in document.items()})
    except (TypeError, ValueError) as error:
        raise ValueError(f"{path}: {error}") from None


def _label(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not name or not equals:
        raise ValueError(f'label "{text}": write it as NAME=VALUE')
    return name, value
