CREATE TABLE IF NOT EXISTS owned (
    agent TEXT NOT NULL, id TEXT NOT NULL, record BLOB NOT NULL, used REAL NOT NULL, PRIMARY KEY (agent, id)
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS owned_by_use ON owned (agent, used);
CREATE INDEX IF NOT EXISTS owned_by_id ON owned (id);
