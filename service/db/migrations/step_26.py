"""Step 26: finds the press of an action by the message that offers it."""

STATEMENTS = ("CREATE INDEX message_action ON message (action_source_id) WHERE action_source_id IS NOT NULL",)
