"""The version of the program, stated here only: the package, `--version`, the metrics and OpenAPI read it."""

VERSION = "0.1.0"
