// Package syncdisk is a disk for tests that loses what was not synced: a FUSE file system over a directory whose power can be
// cut. Names are durable at once, as on a file system with a journal; the content of a file is when fsync returns.
package syncdisk
