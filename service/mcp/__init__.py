"""The MCP server: tools and resources over the operations of this service (Model Context Protocol, streamable HTTP).

    protocol     messages, versions, errors
    tools        the tools, with schemas derived from the operations that they call
    resources    the resources
    access       what a client may do, for the consent page
    methods      the methods of the protocol
    endpoint     from a request to a response; calls operations as the HTTP API does

There are no sessions: every request is independent. Revisions with a handshake and those without are both served.
"""
