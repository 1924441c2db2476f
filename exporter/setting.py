"""One setting, and how its text is found: flag, then environment, then file, then default.

Nothing here knows which settings there are (`exporter/settings.py` does). Invariant: whatever is wrong
ends in one line that says which setting, where it was read, and what would be right.
"""

from __future__ import annotations

import argparse
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, NoReturn, TypeVar

from exporter.errors import ExporterError

T = TypeVar("T")

ENV_PREFIX = "SLICEMETER_"


class SettingsError(ExporterError):
    """A setting is missing, unknown, or has a value that cannot be; `detail` is the line to print."""

    def __init__(self, detail: str) -> None:
        super().__init__("bad_setting", detail)

    def __str__(self) -> str:
        return self.detail


@dataclass(frozen=True, slots=True)
class Setting(Generic[T]):
    """One setting, wherever it comes from.

    Attributes:
        name: The TOML key; flag and environment variable follow from it.
        help: One line for `--help` and the docs.
        default: As text, as a user would write it; None = required, "" = not set.
        parse: From text to the value; raises ValueError that says what would be right.
        also_env: A variable of the field's own that is read when ours is not set.
    """

    name: str
    help: str
    default: str | None
    parse: Callable[[str], T]
    also_env: str | None = None

    @property
    def flag(self) -> str:
        """The command-line flag."""
        return "--" + self.name.replace("_", "-")

    @property
    def env(self) -> str:
        """The environment variable."""
        return ENV_PREFIX + self.name.upper()


@dataclass(frozen=True, slots=True)
class _Text:
    """A setting's text and the place where it was read, for the error line."""

    text: str
    place: str


@dataclass(frozen=True, slots=True)
class Given:
    """What was given, by setting name; `once` is a way of running, so it has a flag only."""

    texts: Mapping[str, _Text]
    role: str
    environ: Mapping[str, str]
    once: bool

    def value(self, setting: Setting[T]) -> T:
        """The setting's value.

        Raises:
            SettingsError: It is required and was not given, or its text cannot be.
        """
        given = self.texts.get(setting.name)
        if given is None:
            if setting.default is None:
                raise SettingsError(
                    f"exporter {self.role}: {setting.name} is not set; give {setting.flag}, "
                    f"{setting.also_env or setting.env} or the key {setting.name} in the file of --config"
                )
            given = _Text(setting.default, "default")
        try:
            return setting.parse(given.text)
        except ValueError as error:
            raise SettingsError(
                f'exporter {self.role}: {setting.name} = "{given.text}" ({given.place}): {error}'
            ) from error


class _Parser(argparse.ArgumentParser):
    """argparse, but an error is ours to word: one line, no usage text."""

    def error(self, message: str) -> NoReturn:
        raise SettingsError(f"{self.prog}: {message}; {self.prog} --help lists the flags")


def collect(
    role: str, settings: Sequence[Setting[Any]], argv: Sequence[str], environ: Mapping[str, str]
) -> Given:
    """Read flags, environment and file; `--help` prints and exits, as argparse does.

    Raises:
        SettingsError: A flag or key is unknown, or the file cannot be read.
    """
    parser = _Parser(
        prog=f"slicemeter exporter {role}",
        description="Each setting is a flag, a variable, or a key of the --config file (TOML); "
        "the first of these that names it wins.",
        allow_abbrev=False,
    )
    parser.add_argument("--config", metavar="FILE", help="TOML file with settings [SLICEMETER_CONFIG]")
    parser.add_argument("--once", action="store_true", help="one tick, print the page, end")
    for setting in settings:
        default = "required" if setting.default is None else f"default: {setting.default or 'none'}"
        text = f"{setting.help} [{setting.env}; {default}]".replace("%", "%%")
        parser.add_argument(setting.flag, metavar="VALUE", help=text)
    flags = vars(parser.parse_args(list(argv)))
    texts = _from_file(flags["config"] or environ.get(ENV_PREFIX + "CONFIG"), settings)
    for setting in settings:
        variables = [setting.env] if setting.also_env is None else [setting.env, setting.also_env]
        found = next((name for name in variables if name in environ), None)
        if found is not None:
            texts[setting.name] = _Text(environ[found], found)
        if flags[setting.name] is not None:
            texts[setting.name] = _Text(flags[setting.name], setting.flag)
    return Given(texts, role, environ, flags["once"])


def _from_file(path: str | None, settings: Sequence[Setting[Any]]) -> dict[str, _Text]:
    if path is None:
        return {}
    try:
        table = tomllib.loads(Path(path).read_text("utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        reason = str(error.strerror) if isinstance(error, OSError) else str(error)
        raise SettingsError(f"config file {path}: cannot be read as TOML: {reason}") from error
    known = {setting.name for setting in settings}
    for key in table:
        if key not in known:
            raise SettingsError(
                f'config file {path}: unknown key "{key}"; known are: {", ".join(sorted(known))}'
            )
    return {key: _Text(_text_of(key, value, path), path) for key, value in table.items()}


def _text_of(key: str, value: object, path: str) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return str(value)
    if isinstance(value, list) and all(isinstance(item, str) for item in value):
        return ",".join(value)
    raise SettingsError(f"config file {path}: {key} must be text, a number or a list of texts")
