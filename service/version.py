"""The version of the program, defined here only. The package, `--version`, the metrics and OpenAPI read it."""

VERSION = "0.1.0"
