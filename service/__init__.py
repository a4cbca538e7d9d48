"""The service. Packages and modules in import order: each imports only from those listed above it.

    version        the version of the program
    types          aliases of the types of decoded JSON
    interrupts     what Ctrl-C does
    process        standard streams and exit status of a command
    assets         the folders static/ and templates/
    demo/          the demo's data and the tool that generates it; the demo's MCP server and canned assistant
    settings       flags, CX_ variables and defaults; read once, immutable
    clock          time and identifiers, monotonic
    escape         escapes untrusted text for terminals and logs
    logs           log lines as text or JSON
    memoize        caches of pure functions of a text
    http_client    bounded requests to servers that the operator names
    mcp_client/    the client of MCP servers, whose tools the assistant may use
    metrics        Prometheus metrics, summed over the workers
    errors/        every error that a client can get
    pictures/      decodes untrusted pictures, encodes avatars; the only importer of Pillow
    branding       name, colour and logo of the installation, for all pages
    translation/   texts of the pages in the language of the user, and formats of dates
    validators     language tags, time zones, telephone numbers, addresses
    icalendar      events as iCalendar
    responder/     replies of bots without an AI
    fields         column types: storage, wire format, JSON rendering
    db/            engines, transactions, compiled queries, pages, replica, migrations
    api/           what an operation declares: parameter types, schemas, errors, OpenAPI, long polling, event streams
    preferences    the settings document of a user
    models/        one module per table or subject
    history        samples of the last hour, for the charts of the console
    signing        signs and verifies tokens and cursors
    auth/          passwords, tokens, authorization codes, consent, throttling, CSRF
    chat_signals   what the event streams of those who see a chat session show, in memory only
    typing_indicators   who is writing in a chat session
    drafts         the replies that the assistant is writing
    updates        what has changed for a caller since a position
    console/       shared parts of the pages: layout, sign-in, cookies, messages
    http/          application, middleware, decoding, pagination, responses
    mcp/           the MCP server: protocol, tools, resources
    client         the reference command-line client; uses the HTTP API only
    queue_worker   threads that process the tasks of a queue in the database
    assistant/     the AI: its client, the limits of apps, replies, tools and drafts
    outbox/        delivers e-mails, push notifications and webhooks
    timer          the thread for work that is due at a time
    server/        the HTTP server: parser, connections, group commit, event loop, workers
    operate/       import and export, backups, database copy, doctor
    routes/        the operations, one module per resource
    commands/      the command line, one module per group of commands

`app.py`, beside the package, builds the WSGI application. Only `app.py` and `commands` import `routes`.
"""
