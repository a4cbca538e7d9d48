"""How fast the service is beside what a user would take instead, and beside what is possible: `make bench`.

    world         the data, made by one generator for all
    processes     servers as processes, and what they cost
    load          wrk
    limit         answers from memory
    peers/        the same operations on PocketBase, FastAPI and Django Ninja
    copying       the service's rows, copied into their tables
    contestants   how each is filled, started and asked
    works         the lines of the table
    measure       rounds in turn, and their medians
    trials        the lines that are about the service alone, or about starting and memory
    report        the table
    chart         the picture

`python -m tests.bench --quick ROW` runs some lines in their short form.
"""
