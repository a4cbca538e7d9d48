"""Declarations of operations, and what follows from them: parameter types, schemas, errors, OpenAPI."""
