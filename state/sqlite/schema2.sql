-- Version 2, applied after version 1.
--
-- A group may be pinned: it is not evicted to make room, and its bytes are in total.pinned as
-- well as in total.bytes.
--
-- total.epoch changes when something is removed that was not swept: by a Drop, or by another
-- program that empties the tables. A sweep sets total.quiet for its transaction. total.writes
-- counts the items that were written; a file that was restored from a backup has fewer.

ALTER TABLE grp ADD COLUMN pinned INTEGER NOT NULL DEFAULT 0;
ALTER TABLE total ADD COLUMN pinned INTEGER NOT NULL DEFAULT 0;
ALTER TABLE total ADD COLUMN epoch INTEGER NOT NULL DEFAULT 0;
ALTER TABLE total ADD COLUMN writes INTEGER NOT NULL DEFAULT 0;
ALTER TABLE total ADD COLUMN quiet INTEGER NOT NULL DEFAULT 0;

-- Version 1 stored OAuth tokens among the texts: pin them.
UPDATE grp SET pinned = 1 WHERE substr(name, 1, 6) = x'6f6175746800';
UPDATE total SET epoch = random(), pinned = (SELECT coalesce(sum(bytes), 0) FROM grp WHERE pinned = 1);

-- The groups that may be evicted, oldest first.
DROP INDEX grp_seen;
CREATE INDEX grp_seen ON grp (seen, name) WHERE pinned = 0;

CREATE TRIGGER grp_pinned AFTER UPDATE OF pinned, bytes ON grp WHEN old.pinned OR new.pinned BEGIN
    UPDATE total SET pinned = pinned + new.pinned * new.bytes - old.pinned * old.bytes;
END;

DROP TRIGGER item_added;
CREATE TRIGGER item_added AFTER INSERT ON item BEGIN
    UPDATE grp SET items = items + 1, bytes = bytes + new.size WHERE id = new.grp;
    UPDATE total SET items = items + 1, bytes = bytes + new.size, writes = writes + 1;
END;

DROP TRIGGER item_changed;
CREATE TRIGGER item_changed AFTER UPDATE ON item BEGIN
    UPDATE grp SET items = items - 1, bytes = bytes - old.size WHERE id = old.grp;
    UPDATE grp SET items = items + 1, bytes = bytes + new.size WHERE id = new.grp;
    UPDATE total SET bytes = bytes - old.size + new.size, writes = writes + 1;
    DELETE FROM grp WHERE id = old.grp AND items = 0;
END;

DROP TRIGGER grp_dropped;
CREATE TRIGGER grp_dropped AFTER DELETE ON grp BEGIN
    DELETE FROM item WHERE grp = old.id;
    UPDATE total SET items = items - old.items, bytes = bytes - old.bytes, pinned = pinned - old.pinned * old.bytes,
        epoch = epoch + (quiet = 0 AND old.items > 0);
END;

-- An item that is deleted without its group: part of a large group that a sweep removes, or
-- deleted by another program.
CREATE TRIGGER item_removed AFTER DELETE ON item WHEN EXISTS (SELECT 1 FROM grp WHERE id = old.grp) BEGIN
    UPDATE grp SET items = items - 1, bytes = bytes - old.size WHERE id = old.grp;
    UPDATE total SET items = items - 1, bytes = bytes - old.size, epoch = epoch + (quiet = 0);
END;
