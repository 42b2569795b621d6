CREATE TABLE IF NOT EXISTS provider_objects (
    agent TEXT NOT NULL, kind TEXT NOT NULL, id TEXT NOT NULL, provider TEXT NOT NULL, key_label TEXT NOT NULL,
    used REAL NOT NULL, PRIMARY KEY (agent, kind, id)
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS provider_objects_by_use ON provider_objects (agent, used);
CREATE INDEX IF NOT EXISTS provider_objects_by_id ON provider_objects (kind, id);
