-- Version 1. Keys, names and values are blobs: any bytes compare and round-trip as they are.
-- Times are Unix milliseconds. Totals are maintained by triggers, in the transaction that changes
-- them, so that every process on the file agrees.

CREATE TABLE grp (
    id      INTEGER PRIMARY KEY,
    name    BLOB    NOT NULL UNIQUE,
    seen    INTEGER NOT NULL,
    expires INTEGER NOT NULL,
    items   INTEGER NOT NULL DEFAULT 0,
    bytes   INTEGER NOT NULL DEFAULT 0
);
CREATE INDEX grp_seen ON grp (seen, name);
CREATE INDEX grp_expires ON grp (expires);

-- The value is last: reading the columns before it does not touch its overflow pages.
CREATE TABLE item (
    key   BLOB    NOT NULL UNIQUE,
    grp   INTEGER NOT NULL,
    size  INTEGER NOT NULL,
    value BLOB    NOT NULL
);
CREATE INDEX item_grp ON item (grp);

CREATE TABLE total (
    items INTEGER NOT NULL,
    bytes INTEGER NOT NULL
);
INSERT INTO total VALUES (0, 0);

CREATE TRIGGER item_added AFTER INSERT ON item BEGIN
    UPDATE grp SET items = items + 1, bytes = bytes + new.size WHERE id = new.grp;
    UPDATE total SET items = items + 1, bytes = bytes + new.size;
END;

-- An overwrite may move the item to another group; an empty group is deleted.
CREATE TRIGGER item_changed AFTER UPDATE ON item BEGIN
    UPDATE grp SET items = items - 1, bytes = bytes - old.size WHERE id = old.grp;
    UPDATE grp SET items = items + 1, bytes = bytes + new.size WHERE id = new.grp;
    UPDATE total SET bytes = bytes - old.size + new.size;
    DELETE FROM grp WHERE id = old.grp AND items = 0;
END;

-- Items are deleted only with their group.
CREATE TRIGGER grp_dropped AFTER DELETE ON grp BEGIN
    DELETE FROM item WHERE grp = old.id;
    UPDATE total SET items = items - old.items, bytes = bytes - old.bytes;
END;
