-- Version 3, applied after version 2.
--
-- A group has an owner, such as a tenant; x'' is the gateway itself. owner.bytes is the sum of the
-- owner's unpinned groups; an owner without any has no row.

ALTER TABLE grp ADD COLUMN owner BLOB NOT NULL DEFAULT x'';

-- Earlier versions wrote the owner into the names of groups: "cut/", "note/" or "time/", then 16 digits.
UPDATE grp SET owner = substr(name, 5, 16) WHERE substr(name, 1, 4) = x'6375742f';
UPDATE grp SET owner = substr(name, 6, 16) WHERE substr(name, 1, 5) IN (x'6e6f74652f', x'74696d652f');

CREATE TABLE owner (
    name  BLOB    NOT NULL PRIMARY KEY,
    bytes INTEGER NOT NULL
) WITHOUT ROWID;
INSERT INTO owner SELECT owner, sum(bytes) FROM grp WHERE pinned = 0 GROUP BY owner;

-- The groups of an owner that may be evicted, oldest first.
DROP INDEX grp_seen;
CREATE INDEX grp_owner ON grp (owner, pinned, seen, name);

CREATE TRIGGER grp_owned AFTER UPDATE OF owner, pinned, bytes ON grp
WHEN old.owner <> new.owner OR old.pinned <> new.pinned OR old.bytes <> new.bytes BEGIN
    INSERT INTO owner VALUES (new.owner, new.bytes * (1 - new.pinned)) ON CONFLICT (name) DO UPDATE SET bytes = bytes + excluded.bytes;
    UPDATE owner SET bytes = bytes - old.bytes * (1 - old.pinned) WHERE name = old.owner;
    DELETE FROM owner WHERE bytes = 0 AND name IN (old.owner, new.owner);
END;

CREATE TRIGGER grp_disowned AFTER DELETE ON grp BEGIN
    UPDATE owner SET bytes = bytes - old.bytes * (1 - old.pinned) WHERE name = old.owner;
    DELETE FROM owner WHERE bytes = 0 AND name = old.owner;
END;
