"""Step 10: an index of the questions of a bot's canned answers, for the list of them."""

STATEMENTS = ("CREATE INDEX bot_answer_bot_id_question_id ON bot_answer (bot_id, question, id)",)
