"""From a WSGI request to a response.

The modules, in the order in which a request passes through them:

    middleware        request identifier, log line, metrics, headers of every response
    application       the router, static files, 404 and 405
    client_address    address, scheme and cookies of the client, also behind a proxy
    endpoints         authentication, path, query, body, handler, response or error
    decoding          JSON bodies, forms and query strings
    multipart         uploads
    pagination        cursors
    responses         JSON, OAuth and media responses, ETags, error responses
    pages             HTML pages and redirects
"""
