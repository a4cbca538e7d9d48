"""Operation of an installation: import and export, backups, database copy, doctor."""
