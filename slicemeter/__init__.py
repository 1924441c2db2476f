"""The command line: every subcommand a thin, lazily imported wrapper over the other packages."""
