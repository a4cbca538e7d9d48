"""The refusals a client can meet: read from top to bottom, its two modules are the error reference.

A class is a refusal; its docstring is the sentence that people read, `code` the stable word that programs read.
Codes and statuses are section 7 of the document and section 2 of the contract.
"""

from service.errors.general import *  # noqa: F403
from service.errors.parts import *  # noqa: F403
