// Package rotate rotates the logs of running containers.
//
// It owns the rotated files of a log; the live file belongs to the runtime. The caller provides the
// running containers. The size of their live files is checked every period. A container that is not
// running writes nothing.
//
// The files of one log, oldest last:
//
//	3.log                          written by the runtime
//	3.log.20260102-030405          the newest rotated file, not compressed: the
//	                               runtime may still write the last lines to it
//	3.log.20260102-020000.gz       older ones
//	3.log.20260102-010000.tmp      being compressed, or left by an agent that was killed
//
// A rotation renames the live file, has the runtime open a new one, and then cleans up: it removes
// files that are too old or left over, and compresses the file that was not compressed before. If
// the runtime fails to reopen the log, the file is renamed back, unless a new live file exists by
// then. Names sort by age, even when the clock is set back: if a rotated file has a later time than
// now in its name, the next name is later still.
//
// A log that exceeds its limit within one period is checked more often, up to once a second, and
// compression is postponed until it slows down. The disk usage of a container's logs is bounded by
// the number of files times the sum of the limit and the amount written in a second.
//
// Usage is a metrics collector for the disk usage of logs.
//
// A container may have the log directory as a volume and put anything there. Paths are never
// followed out of the root of all logs, and only regular files are read or changed.
//
// Rotator.mu guards the set of logs being worked on. No call is made while it is held.
package rotate
