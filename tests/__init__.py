"""The tests, sorted by package as service/ is.

Layers:

    make everyday   everything that is not marked `slow` or `extended`, on SQLite: no servers, no browsers
    make test       everything that is not marked `extended`, on SQLite, after lint and types
    make test-all   everything on SQLite, then everything that has a database on PostgreSQL; CI runs this

Markers:

    slow                    starts servers or browsers, waits for real time, or takes long
    extended                takes very long, or needs servers beside the service: clusters, failover, proxies, a
                            PostgreSQL of its own; 100,000 rows, fuzzing, half of the windows that pages are shown in
    database                has a database without a fixture that opens one (`application`, `place`, `shipped` and what
                            is built on them); tests with such a fixture need no marker; other tests get no database
    sqlite_only(reason)     is not run on PostgreSQL
    postgresql_only(reason) is not run on SQLite

Folders: one for each package of service/; `system` for executables, processes, several instances and browsers;
`project` for the repository itself; `support` for what several tests share. No test file imports from another.
`bench`, `torture` and `mutation` are tools: see the targets of the Makefile.
"""
