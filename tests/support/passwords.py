"""The password of every user of the tests, and its hash, which is cheap to verify: it needs 8 KiB and one pass."""

PASSWORD = "correct horse battery staple"

PASSWORD_HASH = "$argon2id$v=19$m=8,t=1,p=1$gdBa6/1fi1Hq/V9LCQGg1A$Eq4cUFtJbhy94pR1EkthqMukMbhb1mL4SAo0TFsGFLg"
