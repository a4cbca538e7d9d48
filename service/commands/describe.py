"""`routes` and `openapi`: what the service offers, from its own declarations."""

import argparse
import sys

import msgspec

from service import openapi
from service.routes import operations
from service.settings import Settings


def add_arguments(name: str, parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--documented-only", action="store_true", default=None, help="leave extensions out")
    parser.set_defaults(run=print_routes if name == "routes" else print_openapi)


def print_routes(_: argparse.Namespace, settings: Settings) -> None:
    sys.stdout.write(openapi.listing(operations(settings.documented_only)))


def print_openapi(_: argparse.Namespace, settings: Settings) -> None:
    described = openapi.document(operations(settings.documented_only), settings.public_url)
    sys.stdout.write(msgspec.json.format(msgspec.json.encode(described)).decode() + "\n")
