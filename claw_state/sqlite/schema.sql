-- The tables of the state. Every statement can run again: a file of an earlier version is brought up to date by it.

DROP TABLE IF EXISTS hidden;
CREATE TABLE IF NOT EXISTS kept (
    id INTEGER PRIMARY KEY AUTOINCREMENT, agent TEXT NOT NULL, key TEXT NOT NULL, before TEXT NOT NULL,
    session TEXT NOT NULL, messages BLOB NOT NULL, used REAL NOT NULL
);
CREATE INDEX IF NOT EXISTS kept_by_key ON kept (agent, key, id);
CREATE INDEX IF NOT EXISTS kept_by_use ON kept (agent, used);
CREATE INDEX IF NOT EXISTS kept_whole ON kept (agent, used) WHERE LENGTH(messages) > 1;
CREATE INDEX IF NOT EXISTS kept_marks ON kept (agent, used) WHERE LENGTH(messages) <= 1;

CREATE TABLE IF NOT EXISTS turns (
    turn TEXT PRIMARY KEY, agent TEXT NOT NULL, request TEXT NOT NULL, earlier TEXT NOT NULL, said TEXT NOT NULL,
    attempt TEXT NOT NULL, state TEXT NOT NULL, owner TEXT NOT NULL, seen REAL NOT NULL, answer BLOB
);
CREATE UNIQUE INDEX IF NOT EXISTS one_runs ON turns (agent, request) WHERE state = 'running';
CREATE INDEX IF NOT EXISTS turns_by_request ON turns (agent, request, seen);
DROP INDEX IF EXISTS turns_that_may_go_on;
DROP INDEX IF EXISTS turns_to_go_on_with;
CREATE INDEX IF NOT EXISTS turns_not_done ON turns (agent, earlier, seen) WHERE state != 'done';
CREATE INDEX IF NOT EXISTS turns_by_time ON turns (seen);
CREATE TABLE IF NOT EXISTS steps (
    turn TEXT NOT NULL, round INTEGER NOT NULL, place INTEGER NOT NULL, record BLOB NOT NULL,
    PRIMARY KEY (turn, round, place)
) WITHOUT ROWID;
CREATE TRIGGER IF NOT EXISTS a_turn_goes_with_its_steps AFTER DELETE ON turns BEGIN
    DELETE FROM steps WHERE turn = OLD.turn;
END;
CREATE TRIGGER IF NOT EXISTS an_answer_is_all_that_is_kept AFTER UPDATE OF answer ON turns WHEN NEW.answer IS NOT NULL BEGIN
    DELETE FROM steps WHERE turn = NEW.turn;
END;

CREATE TABLE IF NOT EXISTS spending (
    agent TEXT NOT NULL, ends REAL NOT NULL, requests INTEGER NOT NULL, cost REAL NOT NULL, unknown INTEGER NOT NULL,
    PRIMARY KEY (agent, ends)
) WITHOUT ROWID;
