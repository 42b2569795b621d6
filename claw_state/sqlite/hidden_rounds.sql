DROP TABLE IF EXISTS hidden;
CREATE TABLE IF NOT EXISTS kept (
    id INTEGER PRIMARY KEY AUTOINCREMENT, agent TEXT NOT NULL, key TEXT NOT NULL, before TEXT NOT NULL,
    session TEXT NOT NULL, messages BLOB NOT NULL, used REAL NOT NULL
);
CREATE INDEX IF NOT EXISTS kept_by_key ON kept (agent, key, id);
CREATE INDEX IF NOT EXISTS kept_by_use ON kept (agent, used);
CREATE INDEX IF NOT EXISTS kept_whole ON kept (agent, used) WHERE LENGTH(messages) > 1;
CREATE INDEX IF NOT EXISTS kept_marks ON kept (agent, used) WHERE LENGTH(messages) <= 1;
CREATE TABLE IF NOT EXISTS kept_names (
    agent TEXT NOT NULL, key TEXT NOT NULL, id INTEGER NOT NULL, PRIMARY KEY (agent, key, id)
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS kept_names_by_id ON kept_names (id);
CREATE TRIGGER IF NOT EXISTS kept_names_go AFTER DELETE ON kept BEGIN DELETE FROM kept_names WHERE id = OLD.id; END;
