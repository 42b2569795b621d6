CREATE TABLE IF NOT EXISTS turns (
    turn TEXT PRIMARY KEY, agent TEXT NOT NULL, request TEXT NOT NULL, earlier TEXT NOT NULL, said TEXT NOT NULL,
    attempt TEXT NOT NULL, state TEXT NOT NULL, owner TEXT NOT NULL, seen REAL NOT NULL, answer BLOB
);
CREATE UNIQUE INDEX IF NOT EXISTS one_runs ON turns (agent, request) WHERE state = 'running';
DROP INDEX IF EXISTS turns_by_request;
CREATE INDEX IF NOT EXISTS turns_of_request ON turns (agent, request);
DROP INDEX IF EXISTS turns_that_may_go_on;
DROP INDEX IF EXISTS turns_to_go_on_with;
CREATE INDEX IF NOT EXISTS turns_not_done ON turns (agent, earlier, seen) WHERE state != 'done';
CREATE INDEX IF NOT EXISTS turns_by_time ON turns (seen);
-- Not WITHOUT ROWID: there a record of more than a kilobyte would lie in pages of its own, and each is five to write.
CREATE TABLE IF NOT EXISTS steps (
    turn TEXT NOT NULL, round INTEGER NOT NULL, place INTEGER NOT NULL, record BLOB NOT NULL,
    PRIMARY KEY (turn, round, place)
);
CREATE TRIGGER IF NOT EXISTS a_turn_goes_with_its_steps AFTER DELETE ON turns BEGIN
    DELETE FROM steps WHERE turn = OLD.turn;
END;
CREATE TRIGGER IF NOT EXISTS an_answer_is_all_that_is_kept AFTER UPDATE OF answer ON turns WHEN NEW.answer IS NOT NULL BEGIN
    DELETE FROM steps WHERE turn = NEW.turn;
END;
