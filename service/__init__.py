"""The service, room by room, in import order: a module imports only from those above it.

    version        the version of the program
    interrupts     what Ctrl-C does
    process        the process of a command: its standard streams and its exit status
    assets         where static/ and templates/ are
    demo/          the records of the demo, and the tool that makes them, which the service does not load
    settings       flags, CX_ variables and defaults; read once, frozen
    clock          time and identifiers; never backwards
    terminal       texts of others on their way to a terminal or a log
    logs           log lines, for people or for programs
    remembering    functions that are asked about the same few texts
    metrics        numbers for Prometheus, added up over the workers
    errors/        the refusals a client can meet
    pictures/      strangers' pictures in, safe avatars out; the only importer of Pillow
    formats        texts with a form of their own: language tags, time zones, telephone numbers
    icalendar      events as calendar programs read them
    responder/     what bots answer by themselves, without an AI
    assistant      an AI that the operator names, asked over HTTP
    fields         kinds of columns: as stored, as sent, as rendered by the database
    db             opening the database, write(), pages as JSON
    shapes         tables as types: what a row looks like on the wire, what a request may write of it
    waiting        requests put aside until something happens
    signature      what a handler's signature may name: bounds, cursors, pages, files
    preferences    the settings document of a user: its form, its defaults, its patches
    migrations/    the steps from an empty database to today's
    models/        tables, with the questions and verbs that belong to them
    auth/          passwords, signed texts, tokens, throttling
    keeping        answers kept for repeated requests
    operations     what an operation declares
    declared_errors  the errors that an operation may answer with
    origins        where a request comes from
    decoding       reading bodies and queries
    forms          reading multipart/form-data
    cursors        signed positions in lists
    updates        what has changed for a caller, and for whom anything has changed
    console/       what the pages of the console have in common
    replies        answers on their way out; refusals in the envelope
    edge           what holds for every answer: request identifier, log line, headers, crashes
    web            from a request to an answer; the only importer of Bottle
    json_schemas   declared types as JSON Schema
    openapi        declarations as OpenAPI 3.1
    client         the reference command-line client; knows the service over HTTP only
    asking         threads that get the answers which bots owe from the assistant
    server/        waitress, its workers and signals
    transfer       import and export
    copying        everything from one database into another
    backups        everything in one file that was checked, and back
    doctor/        what may be wrong with an installation; looks, and changes nothing
    routes/        the operations, a module for each part of the document; its __init__ is the table of contents
    commands/      the command line, a module for each group of commands

`app.py` beside the package is the door. Nobody but it and `commands` imports `routes`.
"""
