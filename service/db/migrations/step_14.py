"""Step 14: indexes of users by role and by app, for the list of the staff of an app."""

STATEMENTS = (
    'CREATE INDEX user_of_role ON "user" (role, id)',
    'CREATE INDEX user_of_app ON "user" (app_id, role, id)',
)
