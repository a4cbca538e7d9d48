"""The version of the program, defined here only. The package, `--version`, the metrics and OpenAPI read it."""

import os
from importlib.machinery import EXTENSION_SUFFIXES

VERSION = "0.2.0"
COMMIT = ""  # in an executable, the commit it was built from; with a + if files were changed since

HOST = EXTENSION_SUFFIXES[0].split(".")[1]  # Python, processor and C library, such as cpython-311-x86_64-linux-gnu
if HOST.endswith("-darwin"):
    HOST = f"{HOST}-{os.uname().machine}"
