"""The benchmark: the service compared with other servers and with the theoretical limit (`make bench`).

    dataset       the data, generated once for all servers
    processes     servers as processes, their processor time and memory
    load          load generation with wrk
    limit         a server that sends responses from memory
    peers/        the same operations on PocketBase, FastAPI and Django Ninja
    row_copy      copies the rows of the service into the tables of the other servers
    servers       how each server is filled, started and requested
    workloads     the operations that are measured on all servers
    measure       alternating rounds, and their medians
    checks        measurements of the service alone: deep pages, mixed load, start, memory, size
    against       another executable of the service beside this one
    small         the service alone, on a small host
    report        the table
    chart         the picture

`python -m tests.bench --quick ROW` runs some rows in a short form.
"""
